"""`fairlane mirror`: copy the messages of a queue to another broker while both run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

from fairlane.cli.toolkit.command import AsJson, CommandGroup, Output, QueueName, command, print_output
from fairlane.cli.toolkit.output import echo, plural
from fairlane.cli.toolkit.parameters import opt
from fairlane.errors import FairlaneError, Forbidden, InvalidRequest, NotFound, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from fairlane.cli.toolkit.screen import ProgressBar
    from fairlane.client import Client
    from fairlane.model.batch import Batch
    from fairlane.model.message import Message
    from fairlane.model.verdict import Verdict

app = CommandGroup()
GROUP = "mirror"
_BATCH = 500
_LANES = 100
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
_FROM = opt("Broker to copy from. Its key is FAIRLANE_KEY.", "--from", metavar="URL")
_TO = opt("Broker to copy to.", "--to", metavar="URL")
_TO_KEY = opt("Key of the broker to copy to, if it is another one.", envvar="FAIRLANE_TO_KEY")


@command(app)
def mirror(
    queue: QueueName,
    source: Annotated[str, _FROM],
    target: Annotated[str, _TO],
    to_key: Annotated[str | None, _TO_KEY] = None,
    group: Annotated[str, opt("Consumer group on the source. Keeps the place of the mirror.")] = GROUP,
    idle_seconds: Annotated[
        float | None, opt("Stop after this many seconds without a message. Without it, run until stopped.")
    ] = None,
    json: Annotated[bool, AsJson.__metadata__[0]] = False,
) -> None:
    """Copy the messages of a queue to another broker, and keep copying new ones.

    Copies each partition in order, with ids, types, headers, trace ids and priorities. A repeated message is ignored by
    the target, which knows its transactionId. Creates the queue there with the same options if it is missing.
    """
    if source == target:
        raise InvalidRequest("--from and --to name the same broker; a mirror needs two")
    try:
        count = asyncio.run(_run(queue, source, target, to_key, group, idle_seconds))
    except Unavailable as error:
        hint = "Is a broker running there? `fairlane serve` starts one; --from and --to name the brokers."
        raise Unavailable(f"{error}\n{hint}") from None
    print_output(Output({"queue": queue, "mirrored": count}, f"Mirrored {plural(count, 'message')} of {queue}."), json)


async def _run(queue: str, source: str, target: str, to_key: str | None, group: str, idle: float | None) -> int:
    from fairlane.cli.toolkit.screen import ProgressBar
    from fairlane.client import Batched, Client

    key: dict[str, Any] = {} if to_key is None else {"token": to_key}
    async with Client(_servers(source)) as here, Client(_servers(target), queued_operation="wait", **key) as there:
        await _create(here, there, queue)
        with ProgressBar() as bar:
            mirror = Mirror(there, queue, bar)
            consumer = here.consumer(
                queue, Batched(mirror.copy), group=group, batch=_BATCH, partitions=_LANES, idle_seconds=idle
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, consumer.stop)
            try:
                await consumer.run()
            finally:
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.remove_signal_handler(number)
    return mirror.count


def _servers(urls: str) -> list[str]:
    return [url.strip() for url in urls.split(",")]


async def _create(here: Client, there: Client, queue: str) -> None:
    """Create the queue on the target with the options of the source, unless it exists."""
    from fairlane.wire.queues import OPTION_NAMES

    options = (await here.queues.show(queue, limit=1)).options
    try:
        await there.queues.show(queue, limit=1)
    except NotFound:
        named = {name: options[sent] for name, sent in OPTION_NAMES.items() if sent in options}
        await there.queues.configure(queue, **named)


class Mirror:
    """Copies batches to the target."""

    def __init__(self, target: Client, queue: str, bar: ProgressBar) -> None:
        self._target = target
        self._queue = queue
        self._bar = bar
        self.count = 0
        """Messages that the target has, including repeats."""

    async def copy(self, batch: Batch[Any]) -> list[Verdict | None]:
        """Push a batch, and return once the target has stored it. Waits while the target is unavailable.

        The target stores the messages of a partition together or refuses them together. After a refusal the messages
        of the partition are pushed one by one, so that those after the refused one wait.
        """
        errors = await self._push(batch)
        verdicts: list[Verdict | None] = []
        for _, lane in groupby(zip(batch, errors, strict=True), key=lambda pair: pair[0].partition_id):
            messages, refusals = zip(*lane, strict=True)
            if any(refusals):
                verdicts += await self._one_by_one(messages)
            else:
                verdicts += [None] * len(messages)
        self.count += verdicts.count(None)
        self._bar.update(f"mirroring {self._queue}: {plural(self.count, 'message')}", 0, None)
        return verdicts

    async def _one_by_one(self, lane: Sequence[Message[Any]]) -> list[Verdict | None]:
        from fairlane.model.verdict import Fail, Retry

        for done, message in enumerate(lane):
            [error] = await self._push([message])
            if error is not None:
                echo(f"The target refused {message.transaction_id} of {message.partition}: {error}")
                waiting = len(lane) - done - 1
                return [*[None] * done, Fail(f"the mirror's target refused it: {error}"), *[Retry()] * waiting]
        return [None] * len(lane)

    async def _push(self, messages: Sequence[Message[Any]]) -> list[FairlaneError | None]:
        """Return the error of each message that the target refused for good. None for messages that it has."""
        items = [self._item(message) for message in messages]
        attempt = 0
        while True:
            try:
                errors = [outcome.error for outcome in await self._target.push_many(items)]
                waiting = next((error for error in errors if error is not None and error.retryable), None)
                if waiting is None:
                    return errors
                reason: FairlaneError = waiting
            except FairlaneError as error:
                if not error.retryable and not isinstance(error, (Unauthenticated, Forbidden)):
                    return [error] * len(items)
                reason = error
            if not attempt:
                echo(f"The target does not take messages, waiting for it: {reason}")
            await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])
            attempt += 1

    def _item(self, message: Message[Any]) -> Any:
        from fairlane.model.message import PushItem

        return PushItem(
            queue=self._queue,
            payload=bytes(message.raw),
            partition=message.partition,
            transaction_id=message.transaction_id,
            trace_id=message.trace_id,
            type=message.type,
            headers=message.headers,
            priority=message.priority or None,
            max_attempts=message.max_attempts,
        )
