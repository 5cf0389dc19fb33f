"""The settler of a consumer: sends the verdicts of its handlers to the broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.errors import FairlaneError, Overloaded
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome
from fairlane.model.verdict import is_redelivered
from fairlane.runtime.backoff import backoff
from fairlane.runtime.claim import Claim, Report

if TYPE_CHECKING:
    from fairlane.runtime.consumer import Consumer

POSTPONED_MS = 1000
_FIRST_SECONDS = 0.2
_SECONDS_MAX = 5.0


class Settler:
    """Sends acks one request after another, each with all verdicts since the last. So acks of a lane stay in order."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._waiting: list[Report] = []
        self._sending: asyncio.Task[None] | None = None
        self._transactions: set[asyncio.Task[None]] = set()

    def add(self, report: Report) -> None:
        report.claim.unacked += 1
        self._waiting.append(report)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def drain(self) -> None:
        """Wait until all reports are acked at the broker, or given up."""
        while self._sending is not None or self._transactions:
            await asyncio.wait([*([self._sending] if self._sending else []), *self._transactions])

    def refused(self, transaction_id: str) -> None:
        """Log an ack that was refused because its lease is lost."""
        text = "ack of %(transaction_id)s of queue %(queue)r refused: lost its lease"
        self._consumer.handling.log.warning(text, {**self._consumer.names, "transaction_id": transaction_id})

    def take_last(self) -> list[Report]:
        """Take the reports that end their claims, for a pop that carries their acks.

        Nothing else of these claims is in flight, so their acks cannot overtake others.
        """
        ends = self._ended_claims()
        taken = [report for report in self._waiting if report.claim in ends]
        self._waiting = [report for report in self._waiting if report.claim not in ends]
        for claim in ends:
            self._consumer.renewer.unschedule(claim)
        return taken

    def put_back(self, reports: list[Report]) -> None:
        """Send acks on their own that a pop may not have delivered. Repeated acks are no-ops."""
        if reports:
            self._waiting = [*reports, *self._waiting]
            for claim in {report.claim for report in reports}:
                claim.acked_alone = True
                if self._consumer.renews:
                    self._consumer.renewer.schedule(claim)
            if self._sending is None:
                self._sending = asyncio.create_task(self._send())

    def settle(self, reports: list[Report], outcomes: Sequence[AckOutcome], claims: list[Claim]) -> None:
        """Record the outcomes of acks that a pop carried, and remove their reports from the list."""
        self._note(outcomes, claims)
        for report in reports:
            self._report_settled(report)
        reports.clear()

    async def _offer_to_pop(self) -> None:
        """Attach the last acks of claims to the next pop and free their slots, if there may be more messages."""
        consumer = self._consumer
        if consumer.stopped or not (consumer.awaits_slot or consumer.per_lane):
            return
        if ended := self._ended_claims():
            for claim in ended:
                consumer.free_slot_of(claim)
            if not consumer.awaits_slot:
                consumer.poll_more()
            await asyncio.sleep(0)

    def _ended_claims(self) -> set[Claim]:
        """Return the claims whose messages are all reported, and whose open reports all wait here."""
        waiting = Counter(report.claim for report in self._waiting)
        pushed = {report.claim for report in self._waiting if report.pushed}
        return {
            claim
            for claim, count in waiting.items()
            if not (claim.open or claim.lost or claim.acked_alone) and claim.unacked == count and claim not in pushed
        }

    async def _send(self) -> None:
        try:
            while self._waiting:
                await self._offer_to_pop()
                reports, self._waiting = self._waiting, []
                acks_only = [report for report in reports if not report.pushed]
                if acks_only:
                    await self._ack(*merged(acks_only))
                for report in acks_only:
                    self._report_settled(report)
                for report in reports:
                    if report.pushed:  # behind the acks of its lane
                        task = asyncio.create_task(self._transact(report))
                        self._transactions.add(task)
                        task.add_done_callback(self._transactions.discard)
        finally:
            self._sending = None

    def _report_settled(self, report: Report) -> None:
        report.claim.unacked -= 1
        self._consumer.finish_if_settled(report.claim)

    async def _ack(self, items: list[AckItem], claims: list[Claim]) -> None:
        consumer, failures = self._consumer, 0
        outcomes: Sequence[AckOutcome] | None = None
        while outcomes is None:
            try:
                outcomes = await consumer.verbs.ack_many(items, group=consumer.group, queue=consumer.queue)
            except FairlaneError as error:
                failures += 1
                if not await self._back_off(error, failures, claims):
                    text = "cannot ack %(messages)d messages of queue %(queue)r, they are delivered again: %(error)s"
                    consumer.handling.log.error(text, {**consumer.names, "messages": len(items), "error": error})
                    return
            except Exception as error:  # a bug here must not keep their leases alive
                text = "unexpected error in an ack, %(messages)d messages of queue %(queue)r are delivered again"
                consumer.handling.log.error(text, {**consumer.names, "messages": len(items)}, exc_info=error)
                return
        self._note(outcomes, claims)

    def _note(self, outcomes: Sequence[AckOutcome], claims: list[Claim]) -> None:
        """Record lost leases and cancelled messages."""
        consumer = self._consumer
        for outcome, claim in zip(outcomes, claims, strict=True):
            if outcome.code == "lease_lost":
                self.refused(outcome.transaction_id)
                consumer.lose_lease(claim)
            elif outcome.code == "cancelled":
                fields = {**consumer.names, "transaction_id": outcome.transaction_id}
                consumer.handling.log.info("%(transaction_id)s of queue %(queue)r was cancelled", fields)

    async def _back_off(self, error: FairlaneError, failures: int, claims: list[Claim]) -> bool:
        """Wait before a retry. Returns False if a retry is pointless."""
        if not self._consumer.handling.retries_acks or not error.retryable or all(claim.lost for claim in claims):
            return False
        if failures == 1:
            text = "cannot ack messages of queue %(queue)r, retrying: %(error)s"
            self._consumer.handling.log.warning(text, {**self._consumer.names, "error": error})
        await asyncio.sleep(backoff(failures, base=_FIRST_SECONDS, most=_SECONDS_MAX))
        return True

    async def _transact(self, report: Report) -> None:
        """Ack and push in one transaction. If it is refused, the messages are delivered again later."""
        done = [pair for pair in zip(report.messages, report.items, strict=False) if not is_redelivered(pair[1])]
        again = [item for item in report.items if is_redelivered(item)]
        committed = await self._commit(report, done)
        if not committed:
            self._consumer.handled -= len(done)
            again = [_postponed(item) for item in report.items]
        if again and not report.claim.lost:
            await self._ack(again, [report.claim] * len(again))
        self._report_settled(report)
        report.resolve(committed)

    async def _commit(self, report: Report, done: list[tuple[Any, AckItem]]) -> bool:
        failures = 0
        while True:
            try:
                await self._consumer.handling.commit(done, report.pushed)
                return True
            except FairlaneError as error:
                failures += 1
                if isinstance(error, Overloaded) or not await self._back_off(error, failures, [report.claim]):
                    text = "transaction refused, nothing of %r was pushed or acked: %s"
                    self._consumer.handling.log.warning(text, report.messages[0], error)
                    return False
            except Exception as error:  # a bug here must not keep the lease alive
                text = "unexpected error in a transaction, nothing of %r was pushed or acked"
                self._consumer.handling.log.error(text, report.messages[0], exc_info=error)
                return False


def merged(reports: list[Report]) -> tuple[list[AckItem], list[Claim]]:
    """Return the acks to send for some reports, and the claim of each.

    In an ordered lane, consecutive completed messages become one cumulative ack of the last.
    """
    items: list[AckItem] = []
    claims: list[Claim] = []
    last: dict[tuple[str | None, PartitionId], int] = {}
    for report in reports:
        for item in report.items:
            lane = item.lease, item.partition
            before = last.pop(lane, None)
            if report.claim.ordered and not report.claim.exact and item.status == "completed" and item.result is None:
                if before is not None:
                    items[before] = msgspec.structs.replace(item, cumulative=True)
                    last[lane] = before
                    continue
                last[lane] = len(items)
            items.append(item)
            claims.append(report.claim)
    return items, claims


def _postponed(item: AckItem) -> AckItem:
    return msgspec.structs.replace(
        item, status="retry", error=None, result=None, delay_ms=POSTPONED_MS, cumulative=False
    )
