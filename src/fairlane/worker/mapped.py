"""Mapped commands of an app, to which compiled specs map messages: of which queues is the broker's to say, and may
change while a worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.client.client import Client
from fairlane.errors import FairlaneError, NotFound
from fairlane.model.names import COMMANDS
from fairlane.runtime.consumer import Consumer
from fairlane.worker.app import Handler, Subscription

if TYPE_CHECKING:
    from fairlane.spec.compiled_queue import CompiledQueue

LOOK_SECONDS = 2.0

log = logging.getLogger("fairlane.worker")


class Mapped:
    """A mapping: makes a message the input of its command, by the expressions that are in force."""

    def __init__(self, compiled: CompiledQueue) -> None:
        self.compiled = compiled

    def __call__(self, payload: bytes) -> bytes:
        from fairlane.spec.compiled_queue import decoded

        command = self.compiled.command(decoded(payload))
        assert command is not None  # only queues with a mapping are asked for
        return msgspec.json.encode(command.input)


class MappedConsumers:
    """Consumers of the queues whose messages become one of these commands. `begin` makes one."""

    def __init__(self, client: Client, handlers: Sequence[Handler], begin: Callable[[Subscription], Consumer]) -> None:
        self._client = client
        self._handlers = {handler.queue: handler for handler in handlers}
        self._begin = begin
        self._running: dict[tuple[str, str], tuple[Mapped, Consumer, asyncio.Task[int]]] = {}
        """By queue and command."""
        self._ending: set[asyncio.Task[int]] = set()
        self._seen: list[dict[str, Any]] | None = None

    @property
    def looked(self) -> bool:
        """Whether it is known what there is."""
        return self._seen is not None

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping`, and until the consumers have ended. Raises an error of one that waiting does not cure."""
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                await self._look()
                tasks = self._tasks()
                await asyncio.wait([stopped, *tasks], timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if any(task.done() for task in tasks):
                    await self._look()  # a consumer ends when its queue is not mapped any more
                    if any(task.done() for task in self._tasks()):
                        break
        finally:
            stopped.cancel()
        for _, consumer, _ in self._running.values():
            consumer.stop()
        tasks = [*self._tasks(), *self._ending]
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            await asyncio.wait(tasks)  # which are cancelled too, and give back what they have
            raise

    def _tasks(self) -> list[asyncio.Task[int]]:
        return [task for *_, task in self._running.values()]

    async def _look(self) -> None:
        try:
            found = [one.spec for one in await self._client.specs.list()]
        except NotFound:  # a broker that knows no specs
            found = []
        except FairlaneError as error:
            log.debug("cannot read the specs: %(error)s", {"error": error})
            return
        if found != self._seen:
            # Beside the loop that keeps leases: to parse takes a while.
            self._renew(await asyncio.to_thread(_mapped, found, set(self._handlers)))
            self._seen = found

    def _renew(self, wanted: dict[tuple[str, str], CompiledQueue]) -> None:
        for key in [key for key in self._running if key not in wanted]:
            _, consumer, task = self._running.pop(key)
            consumer.stop()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for key, compiled in wanted.items():
            if key in self._running:
                self._running[key][0].compiled = compiled
            else:
                self._running[key] = self._started(*key, compiled)

    def _started(self, queue: str, command: str, compiled: CompiledQueue) -> tuple[Mapped, Consumer, asyncio.Task[int]]:
        log.info(
            "messages of queue %(queue)r become the command %(command)r here", {"queue": queue, "command": command}
        )
        mapped = Mapped(compiled)
        handler = msgspec.structs.replace(self._handlers[command], queue=queue, group=COMMANDS)
        subscription = Subscription(queue=queue, group=COMMANDS, handlers={None: handler}, mapping=mapped)
        consumer = self._begin(subscription)
        return mapped, consumer, asyncio.create_task(consumer.run())


def _mapped(documents: list[dict[str, Any]], commands: set[str]) -> dict[tuple[str, str], CompiledQueue]:
    """The compiled queues whose messages become one of these commands, by queue and command. Those that a spec
    declares with `run` are the broker's."""
    from fairlane.spec import ir
    from fairlane.spec.compiled_queue import CompiledQueue

    found: dict[tuple[str, str], CompiledQueue] = {}
    for document in documents:
        try:
            spec = msgspec.convert(document, ir.Spec)
        except msgspec.ValidationError as error:
            log.error("cannot read a spec of the broker, it is for another version: %(error)s", {"error": error})
            continue
        for name, queue in spec.queues.items():
            command = queue.map_to.command if queue.map_to else None
            declared = spec.commands.get(command or "")
            if command in commands and (declared is None or declared.run is None):
                found[name, command] = CompiledQueue(spec, name)
    return found
