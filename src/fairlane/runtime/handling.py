"""Handling: how a consumer handles its messages, and the verbs it calls."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fairlane.errors import InvalidRequest
from fairlane.model import tracebacks
from fairlane.model.batch import AckedAndPopped
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome, RenewOutcome
from fairlane.model.verdict import Verdict, ack_for, failure
from fairlane.otel import tracing
from fairlane.runtime.claim import Claim

if TYPE_CHECKING:
    from fairlane.runtime.consumer import Consumer


class Verbs(Protocol):
    """The verbs of a client, or of a broker in the same process."""

    @property
    def pop(self) -> Callable[..., Awaitable[Any]]: ...
    @property
    def ack_many(self) -> Callable[..., Awaitable[Sequence[AckOutcome]]]: ...
    @property
    def ack_and_pop(self) -> Callable[..., Awaitable[AckedAndPopped]]: ...
    @property
    def cancellations(self) -> Any: ...
    @property
    def messages(self) -> Any: ...
    async def renew(self, lease: str, seconds: int) -> RenewOutcome: ...
    async def release(self, lease: str) -> int: ...


class Handled(NamedTuple):
    """The result of handling some messages. Those with no item that are not `unstarted` were settled by the handler."""

    items: list[AckItem]
    pushed: Sequence[Any] = ()
    """Messages to push in the transaction that acks these."""
    unstarted: int = 0
    """Messages to release."""
    completed: int = 0
    """Messages that the handler finished in its own transaction. If it was rolled back, their lease just ends."""


class Handling:
    """How messages are handled: which concurrently, which one after another. Runs on `loop`, or on the consumer's."""

    log = logging.getLogger("fairlane.consumer")
    loop: asyncio.AbstractEventLoop | None = None
    concurrency = 1
    """Maximum number of concurrent handler calls."""
    whole_batches = False
    """True if the handler takes all messages of a pop in one call."""
    retries_acks = True
    """True to retry acks while the lease may be alive. If False, only the verbs themselves retry."""
    retries_all_pops = False
    """True to retry pops after every error, not only after retryable ones."""

    verb = "handle"
    span_name = ""
    """Verb and name of the spans of handlers. The name defaults to the queue."""

    def next_pop_size(self, consumer: Consumer) -> tuple[int, int]:
        """Return how many messages of how many lanes the next pop should request."""
        raise NotImplementedError

    def slot_each(self, *, ordered: bool) -> bool:
        """Return True if each message takes a slot of the consumer until it is handled.

        If False, its claim takes one until all of it is settled.
        """
        return True

    def parts(self, claim: Claim) -> Iterable[deque[Any]]:
        """Split a claim into parts that may be handled concurrently: one per lane, or per message if unordered."""
        parts: dict[Any, deque[Any]] = {}
        for number, message in enumerate(claim.batch):
            parts.setdefault(message.partition_id if claim.ordered else number, deque()).append(message)
        return parts.values()

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        """Handle one message, or a whole batch if `whole_batches`."""
        raise NotImplementedError

    exits = False
    """True after a handler raised SystemExit or KeyboardInterrupt. The consumer stops then."""

    def on_error(self, error: BaseException, messages: list[Any]) -> Verdict | None:
        """Return the verdict for a handler that raised, or None to release the messages without one."""
        tracing.record_failure(error)
        self.exits = self.exits or isinstance(error, SystemExit | KeyboardInterrupt)
        fields = {"messages": len(messages), **log_fields(messages[0])}
        which = "message" if len(messages) == 1 else "%(messages)d messages from"
        text = f"handler failed on {which} %(message_id)s of queue %(queue)r, partition %(partition)r"
        self.log.warning(text, fields, exc_info=tracebacks.logged(error))
        return failure(error)

    def accepted(self, returned: object, function: Any) -> object:
        """Return `returned`. Logs a warning, once per function, if the value is not a verdict and is therefore lost."""
        if returned is not None and not isinstance(returned, Verdict) and function not in self._warned:
            self._warned = {*self._warned, function}
            fields = {"handler": getattr(function, "__qualname__", function), "kind": type(returned).__name__}
            text = "%(handler)s returned %(kind)s, which is not stored; return Done(value) to store it, or else None"
            self.log.warning(text, fields)
        return returned

    _warned: Set[Any] = frozenset()

    async def commit(self, acks: list[tuple[Any, AckItem]], pushed: Sequence[Any]) -> None:
        """Ack and push in one transaction."""
        raise NotImplementedError

    def lost(self, claim: Claim) -> None:
        """Note that the lease of a claim is lost."""

    def close(self) -> None:
        """Free resources when the consumer has ended."""


def log_fields(message: Any) -> dict[str, Any]:
    """Return the fields of a log line about a delivery of `message`."""
    return {
        "message_id": message.id,
        "queue": message.queue,
        "partition": message.partition,
        "group": message.group,
        "lease": message.lease,
        "attempt": message.failed_attempts + 1,
    }


def one_each(returned: Any, count: int) -> Sequence[object]:
    """Return the verdict for each message from what a batch handler returned. None means that all are done."""
    if returned is None:
        return [None] * count
    size = len(returned) if isinstance(returned, list | tuple) else type(returned).__name__
    if size != count:
        raise InvalidRequest(f"the handler returned {size} verdicts for {count} messages")
    verdicts: Sequence[object] = returned
    return verdicts


def charged(
    messages: Sequence[Any],
    verdict: Verdict | None,
    known: dict[int, Verdict] | None = None,
    settle: Callable[[Any, object], AckItem] = ack_for,
) -> Handled:
    """Return the result of a failed batch. The first message of each lane gets `verdict`, the rest is released.

    Messages with a `known` verdict before it keep theirs. `settle` makes the ack of a verdict.
    """
    failed: set[PartitionId] = set()
    items = []
    for index, message in enumerate(messages if verdict is not None else ()):
        if message.partition_id in failed:
            continue
        if known and index in known:
            items.append(settle(message, known[index]))
        else:
            failed.add(message.partition_id)
            items.append(settle(message, verdict))
    return Handled(items, unstarted=len(messages) - len(items))


async def call_handler(
    handling: Handling, handle: Callable[[Claim, list[Any]], Awaitable[Handled]], claim: Claim, messages: list[Any]
) -> Handled:
    """Handle messages, and turn a failure into verdicts. There are none for messages that were cancelled meanwhile."""
    try:
        with claim.calling(messages):
            done = await handle(claim, messages)
    except BaseException as error:  # the handler's boundary: its failure is a verdict
        if (
            isinstance(error, asyncio.CancelledError)
            and not claim.cancelled
            and all(map(claim.has_cancelled, messages))
        ):
            return Handled([])
        done = charged(messages, handling.on_error(claim.failure(error), messages))
    if claim.cancelled_messages:
        kept = [one for one in done.items if (one.partition, one.position) not in claim.cancelled_messages]
        done = done._replace(items=kept)
    return done
