"""The drain of operations: applies them in the order of their backlogs, each once, whichever broker accepted them.

A claim is a lease on a backlog. Its holder may apply the oldest operations of the backlog, and applying them ends the
claim in the same transaction. So a worker that was thought dead applies nothing twice, and an apply with an unknown
outcome may be repeated.
"""

from __future__ import annotations

import logging
import os
import random
import socket
from collections.abc import Sequence
from time import monotonic
from uuid import UUID, uuid4

from fairlane.broker.ack import Acker
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.apply import PendingAcks, PendingPushes, PendingWrites
from fairlane.broker.deferral.open_operations import OpenOperations
from fairlane.broker.push import Announcer
from fairlane.errors import BrokerFailed, FairlaneError, LaneLocked, ShuttingDown, Unavailable
from fairlane.model.ids import uuid7
from fairlane.model.operation import TIMEOUT_SECONDS
from fairlane.runtime.backoff import backoff
from fairlane.runtime.batch_size import BatchSize
from fairlane.runtime.rate import MEMORY_SECONDS
from fairlane.runtime.service import Service
from fairlane.store.contract.operations import (
    BACKLOGS_MAX,
    RUN_BYTES_MAX,
    Application,
    ApplyResult,
    BacklogClaim,
    ClaimedBacklog,
    Lost,
)
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Full

FLOOR_SECONDS = 0.1
"""Pause between checks while operations are not ready, or claimed by another broker."""
IDLE_SECONDS = 1.0
"""Pause between checks while there are none. Operations of another broker are found this late."""
DEPTH_SECONDS = 0.25
FULL_DELAY_MS = 200
RETRY_DELAY_MS = 200
BROKEN_OFF_DELAY_MS = 1_000
AWAY_SECONDS = (0.1, 3.0)
"""First and longest pause while the store does not answer."""
CLEAN_SECONDS = 600.0
COMPLETED_SECONDS = 3600
"""Time for which completed operations can be looked up."""
FAILED_SECONDS = 30 * 86_400
"""Default time for which failed operations are kept."""
CLEAN_STEP = 10_000
CLAIM_BACKLOGS_MAX = 400
CLAIM_OPERATIONS_MAX = 5_000
CLAIM_BYTES_MAX = 32 * 1024 * 1024
CLAIM_BYTES_MIN = 1024
"""Smallest claim, and smallest share of a claim per backlog. A larger operation is claimed alone."""
CLAIM_SECONDS = TIMEOUT_SECONDS / 3
"""Operations that are not applied within this time are released, before their claim expires."""
OPERATION_BYTES = 256
"""Approximate size of an operation without its payload."""
_ROUNDS_MAX = 100
_IDS_LOGGED = 10

log = logging.getLogger(__name__)


def further_backlogs(backlogs: int, operations: int, size: int, size_max: int = CLAIM_BYTES_MAX) -> int:
    """Return how many more backlogs may be claimed after a first claim with these numbers.

    A flood leaves few operations in each of many backlogs, and later writes to such a backlog must wait, too. But
    claimed operations stay in memory, and are applied in one transaction.
    """
    if backlogs < BACKLOGS_MAX:  # the claim found all backlogs
        return 0
    by_count = CLAIM_OPERATIONS_MAX * backlogs // max(1, operations)
    by_size = size_max * backlogs // max(1, size)
    return max(0, min(CLAIM_BACKLOGS_MAX, by_count, by_size) - backlogs)


def size_of(claimed: Sequence[ClaimedBacklog]) -> int:
    """Return the approximate size of these operations in bytes."""
    return sum(len(one.payload) + OPERATION_BYTES for backlog in claimed for one in backlog.operations)


class OperationDrain(Service):
    """The drain of operations. It claims operations that can be applied, applies them, and rests."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        announcer: Announcer,
        acker: Acker,
        open_operations: OpenOperations,
        failed_seconds: int = FAILED_SECONDS,
    ) -> None:
        super().__init__("operations", open_operations.changed)
        self._store = store
        self._catalogue = catalogue
        self._announcer = announcer
        self._acker = acker
        self._open_operations = open_operations
        self._worker = f"{socket.gethostname()}/{os.getpid()}/{uuid7()[-12:]}"
        self._looked_at = 0.0
        self._clean_at = monotonic() + CLEAN_SECONDS * random.random()  # noqa: S311  # not all brokers at once
        self._failed_seconds = failed_seconds
        self._token: UUID | None = None
        """Token of the last claims, until they are known to have ended."""
        self._claimed_at = 0.0
        self._size = BatchSize(CLAIM_BYTES_MIN, CLAIM_BYTES_MAX)
        self._backlogs = 0
        """Backlogs in the last claim. The next claim divides its bytes by about this number."""
        self.completed = self.failed = self.postponed = 0
        self.acks_lost = 0
        """Acks whose lease had ended. Their messages are delivered again."""

    async def _run(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                worked = await self._drain_once()
                if monotonic() >= self._clean_at:
                    await self.clean()
                failures = 0
            except ShuttingDown:
                return
            except FairlaneError as error:
                failures += 1
                if failures == 1:
                    log.warning("cannot apply operations, the store does not answer: %(error)s", {"error": error})
                await self._rest(backoff(failures, base=AWAY_SECONDS[0], most=AWAY_SECONDS[1]))
                continue
            if not worked:
                await self._rest(FLOOR_SECONDS if self._open_operations.depth else IDLE_SECONDS)

    async def clean(self) -> int:
        """Remove operations that ended an hour ago, and old failed ones. Returns their number."""
        self._clean_at = monotonic() + CLEAN_SECONDS
        cleaned = 0
        ages = {"older_than_seconds": COMPLETED_SECONDS, "failed_seconds": self._failed_seconds}
        while step := await self._store.operations.clean(**ages, limit=CLEAN_STEP):
            cleaned += step
        return cleaned

    async def _drain_once(self) -> bool:
        """Claim and apply once. Returns True if there was anything."""
        if monotonic() >= self._looked_at + DEPTH_SECONDS or not self._open_operations.depth:
            self._open_operations.counted(await self._store.operations.depth())
            self._looked_at = monotonic()
        if not self._open_operations.depth:
            if monotonic() - self._open_operations.rate.at > MEMORY_SECONDS:
                self._size.forget()
                self._backlogs = 0
            return False
        await self._give_back()
        self._open_operations.rate.resume(monotonic())
        self._token, self._claimed_at = uuid4(), monotonic()
        claimed = await self._claim(self._token)
        if claimed:
            size, completed = size_of(claimed), self.completed
            try:
                # Acks do not wait until the pushes of the same claim are stored.
                await self._apply([PendingAcks(one, self._acker) for one in claimed if one.claim.group_id])
                await self._apply([self._pending_pushes(one) for one in claimed if not one.claim.group_id])
            except (Unavailable, BrokerFailed):
                self._size.record_failure(size)
                raise
            if done := self.completed - completed:  # refused operations do not measure the speed
                operations = sum(len(backlog.operations) for backlog in claimed)
                self._size.record(size * done // operations, monotonic() - self._claimed_at)
        if not self._is_overdue():
            self._token = None
        return bool(claimed)

    def _is_overdue(self) -> bool:
        """Return True if the claims are so old that they might expire during another attempt."""
        return monotonic() - self._claimed_at > CLAIM_SECONDS

    def _pending_pushes(self, backlog: ClaimedBacklog) -> PendingPushes:
        return PendingPushes(backlog, self._catalogue, self._announcer, self._store.id_time())

    async def _claim(self, token: UUID) -> list[ClaimedBacklog]:
        size_max = self._size.bytes
        backlogs = max(1, min(BACKLOGS_MAX, size_max // CLAIM_BYTES_MIN))
        run_bytes = min(RUN_BYTES_MAX, size_max // max(1, min(backlogs, self._backlogs)))
        claimed = await self._store.operations.claim(
            self._worker, backlogs=backlogs, run_bytes=run_bytes, run=run_bytes // OPERATION_BYTES, token=token
        )
        self._backlogs = len(claimed)
        operations = sum(len(backlog.operations) for backlog in claimed)
        more = further_backlogs(len(claimed), operations, size_of(claimed), size_max)
        if more:
            run_bytes = min(RUN_BYTES_MAX, max(CLAIM_BYTES_MIN, size_max // more))
            claimed += await self._store.operations.claim(
                self._worker, backlogs=more, run_bytes=run_bytes, run=run_bytes // OPERATION_BYTES, token=token
            )
        return claimed

    async def _give_back(self) -> None:
        """Release claimed backlogs after the store fell silent, so that they need not wait for the claim to expire.

        A backlog that was applied after all is not claimed any more.
        """
        if self._token is not None:
            await self._store.operations.release(self._token)
            self._token = None

    async def _apply(self, claimed: Sequence[PendingWrites]) -> None:
        pending = list(claimed)
        for _ in range(_ROUNDS_MAX):
            if not pending or self._is_overdue():
                return  # the rest is released
            ready: list[tuple[PendingWrites, Application]] = []
            for writes in pending:
                prepared = await writes.prepare()
                if isinstance(prepared, str):
                    await self._fail(writes, prepared)
                else:
                    ready.append((writes, prepared))
            results = await self._try([application for _, application in ready])
            pending = []
            refused: list[tuple[PendingWrites, FairlaneError]] = []
            done = self.completed
            for (writes, application), result in zip(ready, results, strict=True):
                if isinstance(result, FairlaneError):
                    refused.append((writes, result))
                elif application.applied_by(result):
                    self._applied(writes, application, result)
                elif isinstance(result, Full):
                    await self._postpone(
                        writes, f"the queue is full: {result.depth} of {result.capacity} places are taken"
                    )
                elif not isinstance(result, Lost) and writes.on_result(result):
                    pending.append(writes)
            for writes, error in refused:
                if await self._handle_refusal(writes, error, others=self.completed > done):
                    pending.append(writes)
        for writes in pending:
            await self._postpone(writes, "the queue kept changing during this operation")

    async def _try(self, applications: list[Application]) -> list[ApplyResult | FairlaneError]:
        """Apply all applications in one call. If that fails, apply them one by one, so that a bad one fails alone.

        Stops once the claim is overdue, because it might expire during a call. Raises the error of the store if the
        store is unavailable and every application failed.
        """
        if not applications:
            return []
        try:
            return [*await self._store.operations.apply(applications)]
        except (Unavailable, BrokerFailed) as error:
            if len(applications) == 1 and not isinstance(error, LaneLocked | BrokerFailed):
                raise
            if self._is_overdue():
                raise
        results: list[ApplyResult | FairlaneError] = []
        for application in applications:
            if self._is_overdue():
                results.append(Lost())
                continue
            try:
                results += await self._store.operations.apply([application])
            except ShuttingDown:
                raise
            except (Unavailable, BrokerFailed) as error:
                results.append(error)
        errors = [result for result in results if isinstance(result, FairlaneError)]
        away = errors and isinstance(errors[-1], Unavailable) and not isinstance(errors[-1], LaneLocked)
        if away and len(errors) == len(results):
            raise errors[-1]
        return results

    async def _handle_refusal(self, writes: PendingWrites, error: FairlaneError, *, others: bool) -> bool:
        """Return True if refused writes are to be retried at once, with their first operation alone.

        An operation that was tried alone is charged with the error if it is a defect, or if the store applied `others`.
        """
        if isinstance(error, LaneLocked):
            await self._postpone(writes, str(error), BROKEN_OFF_DELAY_MS)
        elif writes.shrink_to_first():
            return True
        elif isinstance(error, BrokerFailed) or others:
            await self._fail(writes, str(error))
        else:
            await self._postpone(writes, str(error), BROKEN_OFF_DELAY_MS)
        return False

    def _applied(self, writes: PendingWrites, application: Application, result: ApplyResult) -> None:
        count = len(application.sequences)
        self.completed += count
        self._open_operations.applied(count, monotonic())
        writes.on_result(result)
        if isinstance(writes, PendingAcks) and (lost := writes.lost):
            self.acks_lost += len(lost)
            first = writes.backlog.operations[0]
            fields = {"acks": len(lost), "queue": first.queue, "partition": first.partition_name, "group": first.group}
            text = "%(acks)d acks of queue %(queue)r, partition %(partition)r, group %(group)r were refused: %(error)s"
            log.warning(text, {**fields, "error": lost[0].error})

    async def _fail(self, writes: PendingWrites, error: str) -> None:
        retries = writes.backlog.operations[0].retries
        claim = writes.backlog.claim
        failed = await self._store.operations.fail(claim, writes.sequences, error, delay_ms=RETRY_DELAY_MS << retries)
        self.failed += failed
        if failed:
            ids = [str(one.id) for one in writes.backlog.operations if one.sequence in writes.sequences]
            shown = ", ".join(ids[:_IDS_LOGGED]) + (" and others" if len(ids) > _IDS_LOGGED else "")
            fields = {"queue": writes.backlog.operations[0].queue, "error": error, "operation_ids": shown}
            log.error("operations of queue %(queue)r failed: %(error)s (%(operation_ids)s)", fields)

    async def _postpone(self, writes: PendingWrites, error: str, delay_ms: int = FULL_DELAY_MS) -> None:
        claims: list[BacklogClaim] = [writes.backlog.claim]
        self.postponed += await self._store.operations.postpone(claims, delay_ms=delay_ms, error=error)
