"""Verdicts of handlers, sent to the broker as acks."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from fairlane.app.app import Subscription
from fairlane.client.client import Client
from fairlane.client.transactions import Transaction
from fairlane.client.verdicts import comes_again
from fairlane.client.wire import PushStep
from fairlane.errors import FairlaneError, Overloaded, TransactionRefused
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem
from fairlane.runtime.backoff import backoff
from fairlane.worker.claim import Claim, Verdicts

_FAILED = frozenset(("failed", "dlq"))
_FIRST_SECONDS = 0.2
_SECONDS_MAX = 5.0

log = logging.getLogger("fairlane.worker")


class VerdictSender:
    """The sender of verdicts: acks go out one request after another, each with all verdicts that came meanwhile, in
    order, so that no ack of a lane overtakes another. They are repeated while the lease may still be alive. `acked` is
    called for a claim when the broker knows more of it."""

    def __init__(
        self,
        client: Client,
        subscription: Subscription,
        lose: Callable[[Claim], None],
        acked: Callable[[Claim], None],
    ) -> None:
        self._client = client
        self._queue = subscription.queue
        self._group = subscription.group
        self._lose = lose
        self._settled = acked
        self._waiting: deque[Verdicts] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._transactions: set[asyncio.Task[None]] = set()
        self.handled = self.failed = 0

    def add(self, verdicts: Verdicts) -> None:
        verdicts.claim.unacked += 1
        self.handled += len(verdicts.items)
        for item in verdicts.items:
            if item.status in _FAILED:
                self.failed += 1
        self._waiting.append(verdicts)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch = list(self._waiting)
                self._waiting.clear()
                plain = [verdicts for verdicts in batch if not verdicts.pushed]
                if plain:
                    await self._ack(plain)
                for verdicts in batch:
                    if verdicts.pushed:  # behind the acks of its lane
                        task = asyncio.create_task(self._transact(verdicts))
                        self._transactions.add(task)
                        task.add_done_callback(self._transactions.discard)
        finally:
            self._sending = None

    async def _ack(self, some: list[Verdicts]) -> None:
        await self._ack_items(*_needed(some))
        for verdicts in some:
            self._over(verdicts)

    async def _ack_items(self, items: list[AckItem], claims: list[Claim]) -> None:
        failures = 0
        while True:
            try:
                outcomes = await self._client.ack_many(items, group=self._group, queue=self._queue)
            except FairlaneError as error:
                failures += 1
                if not await self._patience(error, failures, claims):
                    log.error(
                        "cannot ack %d messages of queue %r, they are delivered again: %s",
                        len(items),
                        self._queue,
                        error,
                    )
                    return
                continue
            for outcome, claim in zip(outcomes, claims, strict=True):
                if outcome.code == "lease_lost":
                    self.refused(outcome.transaction_id)
                    self._lose(claim)
            return

    def refused(self, transaction_id: str) -> None:
        """By the broker, or by us where it is known what it would say."""
        log.warning("ack of %s of queue %r refused: lost its lease", transaction_id, self._queue)

    async def _patience(self, error: FairlaneError, failures: int, claims: list[Claim]) -> bool:
        """Wait a little; False if that is no use."""
        if not error.retryable or all(claim.lost for claim in claims):
            return False
        if failures == 1:
            log.warning("cannot ack messages of queue %r, retrying: %s", self._queue, error)
        await asyncio.sleep(backoff(failures, base=_FIRST_SECONDS, most=_SECONDS_MAX))
        return True

    async def _transact(self, verdicts: Verdicts) -> None:
        """Acks and pushes together. If that is refused the messages come again: a full queue has room some day."""
        done = [item for item in verdicts.items if not comes_again(item)]
        committed = await self._commit(verdicts, {id(item) for item in done})
        if committed:
            again = [item for item in verdicts.items if comes_again(item)]
        else:
            again = [_postponed(item) for item in verdicts.items]
            self.handled -= len(done)
        if again and not verdicts.claim.lost:
            await self._ack_items(again, [verdicts.claim] * len(again))
        self._over(verdicts)
        if verdicts.known is not None:
            verdicts.known.get_loop().call_soon_threadsafe(_answer, verdicts.known, committed)

    async def _commit(self, verdicts: Verdicts, done: set[int]) -> bool:
        built = Transaction()
        for message, item in zip(verdicts.messages, verdicts.items, strict=False):
            if id(item) in done:
                built.settle(message, item)
        built.steps.append(PushStep(verdicts.pushed))
        failures = 0
        while True:
            try:
                async with self._client.transaction() as transaction:
                    transaction.steps += built.steps
                return True
            except TransactionRefused as error:
                log.warning("transaction refused, nothing was pushed and acked of %r: %s", verdicts.messages[0], error)
                return False
            except FairlaneError as error:
                failures += 1
                if isinstance(error, Overloaded) or not await self._patience(error, failures, [verdicts.claim]):
                    log.warning(
                        "transaction refused, nothing was pushed and acked of %r: %s", verdicts.messages[0], error
                    )
                    return False

    def _over(self, verdicts: Verdicts) -> None:
        verdicts.claim.unacked -= 1
        self._settled(verdicts.claim)

    async def drain(self) -> None:
        """Return when all that was said is known to the broker, or given up on."""
        while self._sending is not None or self._transactions:
            await asyncio.wait([*([self._sending] if self._sending else []), *self._transactions])


def _needed(some: list[Verdicts]) -> tuple[list[AckItem], list[Claim]]:
    """What has to be said, and of which claims. In an ordered lane messages are handled in their order, so that of
    several that are done in a row the last is told, and that it says so of those before it."""
    items: list[AckItem] = []
    claims: list[Claim] = []
    last: dict[tuple[str | None, PartitionId], int] = {}
    for verdicts in some:
        for item in verdicts.items:
            lane = item.lease, item.partition
            before = last.pop(lane, None)
            if verdicts.claim.batch.ordered and item.status == "completed" and item.result is None:
                if before is not None:
                    items[before] = msgspec.structs.replace(item, cumulative=True)
                    last[lane] = before
                    continue
                last[lane] = len(items)
            items.append(item)
            claims.append(verdicts.claim)
    return items, claims


def _answer(future: asyncio.Future[bool], answer: bool) -> None:
    if not future.done():
        future.set_result(answer)


def _postponed(item: AckItem) -> AckItem:
    return AckItem(
        transaction_id=item.transaction_id,
        partition=item.partition,
        status="retry",
        lease=item.lease,
        delay_ms=1000,
    )
