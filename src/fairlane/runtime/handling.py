"""Handling: how a consumer's messages are handled, and whom it asks for them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fairlane import tracing
from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome, RenewOutcome
from fairlane.model.verdict import Verdict, failure, settled
from fairlane.runtime.claim import Claim

if TYPE_CHECKING:
    from fairlane.runtime.consumer import Consumer


class Verbs(Protocol):
    """The verbs of a client, or of a broker in the same process."""

    @property
    def pop(self) -> Callable[..., Awaitable[Any]]: ...
    @property
    def ack_many(self) -> Callable[..., Awaitable[Sequence[AckOutcome]]]: ...
    async def renew(self, lease: str, seconds: int) -> RenewOutcome: ...
    async def release(self, lease: str) -> int: ...


class Handled(NamedTuple):
    """The end of some messages. Those that neither have an item nor are `left` were settled by the handler itself."""

    items: list[AckItem]
    pushed: Sequence[Any] = ()
    """Messages to push in the transaction that acks these."""
    left: int = 0
    """To be given back."""


class Handling:
    """How messages are handled: which at once, which after another, and by whom. Runs on its own `loop`, or on the
    consumer's."""

    log = logging.getLogger("fairlane.consumer")
    loop: asyncio.AbstractEventLoop | None = None
    concurrency = 1
    """Calls of the handler that may run at once."""
    whole = False
    """The handler takes all messages of a pop at once."""
    patient = True
    """Acks are repeated while the lease may be alive; otherwise only as often as the verbs do it themselves."""
    stubborn = False
    """Pops are repeated whatever the error, and not only where waiting may cure it."""

    verb = "handle"
    called = ""
    """For spans: what is done with messages, and by which name if not the queue's."""

    def asks(self, consumer: Consumer) -> tuple[int, int]:
        """How many messages of how many lanes the next pop should bring; `free` slots are there."""
        raise NotImplementedError

    def slot_each(self, *, ordered: bool) -> bool:
        """Each message takes a slot of the consumer's room until it is over; otherwise its claim takes one until all of
        it is settled."""
        return True

    def parts(self, claim: Claim) -> Iterable[deque[Any]]:
        """Messages that are handled one after another, beside other parts: those of a lane."""
        parts: dict[Any, deque[Any]] = {}
        for number, message in enumerate(claim.batch):
            parts.setdefault(message.partition_id if claim.ordered else number, deque()).append(message)
        return parts.values()

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        """Handle one message, or all of a part if they are handled whole."""
        raise NotImplementedError

    exits = False
    """A handler raised SystemExit or KeyboardInterrupt: its consumer stops."""

    def on_error(self, error: BaseException, messages: list[Any]) -> Verdict | None:
        """The verdict of a handler that raised; None: it says nothing of the messages, which are given back."""
        tracing.failed(error)
        self.exits = self.exits or isinstance(error, SystemExit | KeyboardInterrupt)
        fields = {"messages": len(messages), **log_fields(messages[0])}
        text = "handler failed on %(messages)d messages from %(message_id)s of queue %(queue)r, partition %(partition)r"
        self.log.warning(text, fields, exc_info=error)
        return failure(error)

    def accepted(self, returned: object, function: Any) -> object:
        """Return `returned`. Logs a warning, once per function, if the value is not a verdict and is therefore lost."""
        if returned is not None and not isinstance(returned, Verdict) and function not in self._warned:
            self._warned = {*self._warned, function}
            fields = {"handler": getattr(function, "__qualname__", function), "kind": type(returned).__name__}
            text = "%(handler)s returned %(kind)s, which is not kept; return Done(value) to keep it, or else None"
            self.log.warning(text, fields)
        return returned

    _warned: Set[Any] = frozenset()

    async def commit(self, acks: list[tuple[Any, AckItem]], pushed: Sequence[Any]) -> None:
        """Acks and pushes in one transaction."""
        raise NotImplementedError

    def lost(self, claim: Claim) -> None:
        """A lease was lost: nothing more of its claim is begun."""

    def close(self) -> None:
        """The consumer has ended."""


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
    """What a handler of a whole batch returned for each message: None means that all are done."""
    if returned is None:
        return [None] * count
    size = len(returned) if isinstance(returned, list | tuple) else type(returned).__name__
    if size != count:
        raise InvalidRequest(f"the handler gave {size} verdicts for {count} messages")
    verdicts: Sequence[object] = returned
    return verdicts


def charged(
    messages: Sequence[Any],
    verdict: Verdict | None,
    known: dict[int, Verdict] | None = None,
    settle: Callable[[Any, object], AckItem] = settled,
) -> Handled:
    """The failure of several messages: the first of each lane is charged, behind those whose verdict is `known`, and
    the others are given back. `settle` makes the ack of a verdict."""
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
    return Handled(items, left=len(messages) - len(items))
