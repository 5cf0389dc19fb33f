"""The drain of operations: applies them in the order of their backlogs, each once, whoever accepted them.

A claim is a lease on a backlog. Whoever holds it may apply the oldest operations of the backlog, and applying them ends
the claim in the same transaction; so a worker that was thought dead applies nothing twice, and an apply whose outcome
is not known may simply be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
from collections.abc import Sequence
from time import monotonic
from uuid import UUID, uuid4

from fairlane.broker.ack import Acker
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.work import AckWork, PushWork, Work
from fairlane.broker.push import Announcer
from fairlane.errors import BrokerFailed, FairlaneError, LaneLocked, ShuttingDown, Unavailable
from fairlane.model.ids import uuid7
from fairlane.model.operation import TIMEOUT_SECONDS
from fairlane.runtime.backoff import backoff
from fairlane.runtime.batch_size import BatchSize
from fairlane.runtime.rate import MEMORY_SECONDS, Rate
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
"""Between two looks while there are operations that are not ready, or another broker's."""
IDLE_SECONDS = 1.0
"""Between two looks while there are none: those of another broker are found this late."""
DEPTH_SECONDS = 0.25
UNKNOWN_SECONDS = 1.0
"""What an operation is said to wait while the drain rate is not known."""
FULL_DELAY_MS = 200
RETRY_DELAY_MS = 200
BROKEN_OFF_DELAY_MS = 1_000
AWAY_SECONDS = (0.1, 3.0)
"""Pauses while the store does not answer: the first, and at most."""
CLEAN_SECONDS = 600.0
COMPLETED_SECONDS = 3600
"""How long completed operations can be looked up."""
FAILED_SECONDS = 30 * 86_400
"""How long failed ones stay, unless told otherwise."""
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


def room_beside(backlogs: int, operations: int, size: int, size_max: int = CLAIM_BYTES_MAX) -> int:
    """Return how many more backlogs may be claimed beside a first claim that found this many backlogs with this many
    operations of `size` bytes in all. A flood leaves little in each of many backlogs, and while a backlog has some, all
    that comes for it must wait too. But claimed operations stay in memory, and are applied in one transaction."""
    if backlogs < BACKLOGS_MAX:  # these were all
        return 0
    by_count = CLAIM_OPERATIONS_MAX * backlogs // max(1, operations)
    by_size = size_max * backlogs // max(1, size)
    return max(0, min(CLAIM_BACKLOGS_MAX, by_count, by_size) - backlogs)


def size_of(claimed: Sequence[ClaimedBacklog]) -> int:
    """Return about how many bytes it takes to apply these."""
    return sum(len(one.payload) + OPERATION_BYTES for backlog in claimed for one in backlog.operations)


class OperationDrain(Service):
    """The drain of operations: looks for some that can be applied, applies them, and rests."""

    def __init__(self, store: Store, catalogue: Catalogue, announcer: Announcer) -> None:
        super().__init__("operations")
        self._store = store
        self._catalogue = catalogue
        self._announcer = announcer
        self.acker: Acker
        self._worker = f"{socket.gethostname()}/{os.getpid()}/{uuid7()[-12:]}"
        self.rate = Rate()
        self._looked_at = 0.0
        self._clean_at = monotonic() + CLEAN_SECONDS * random.random()  # noqa: S311  # not all brokers at once
        self.failed_seconds = FAILED_SECONDS
        self._token: UUID | None = None
        """Of the last claims, until they are known to have ended."""
        self._claimed_at = 0.0
        self._size = BatchSize(CLAIM_BYTES_MIN, CLAIM_BYTES_MAX)
        self._backlogs = 0
        """Backlogs in the last claim. The next claim divides its bytes by about this number."""
        self.depth = 0
        """Open operations of all brokers, as of the last look and what happened here since."""
        self.completed = self.failed = self.postponed = 0
        self.acks_lost = 0
        """Acks whose lease had ended; their messages are delivered again."""
        self._fewer = asyncio.Event()

    def enqueued(self, count: int) -> None:
        """Operations came."""
        self.depth += count
        self.wake()

    def estimate(self, position: int) -> float:
        """Seconds until an operation at this place of its backlog is applied: all that wait are served in turn."""
        seconds = self.rate.seconds_for(max(position, self.depth))
        return UNKNOWN_SECONDS if seconds is None else round(max(0.01, seconds), 2)

    async def wait_below(self, depth: int, seconds: float) -> None:
        """Wait until fewer than so many are open, so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.depth >= depth:
                    self._fewer.clear()
                    await self._fewer.wait()

    async def _run(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                worked = await self._turn()
                if monotonic() >= self._clean_at:
                    await self.clean()
                failures = 0
            except ShuttingDown:
                return
            except FairlaneError as error:
                failures += 1
                if failures == 1:
                    log.warning(
                        "operations are not applied, for the store does not answer: %(error)s", {"error": error}
                    )
                await self._rest(backoff(failures, base=AWAY_SECONDS[0], most=AWAY_SECONDS[1]))
                continue
            if not worked:
                await self._rest(FLOOR_SECONDS if self.depth else IDLE_SECONDS)

    async def clean(self) -> int:
        """Remove operations that ended an hour ago, and those that failed long ago; how many."""
        self._clean_at = monotonic() + CLEAN_SECONDS
        cleaned = 0
        ages = {"older_than_seconds": COMPLETED_SECONDS, "failed_seconds": self.failed_seconds}
        while step := await self._store.operations.clean(**ages, limit=CLEAN_STEP):
            cleaned += step
        return cleaned

    async def _turn(self) -> bool:
        """Claim and apply once; whether there was anything."""
        if monotonic() >= self._looked_at + DEPTH_SECONDS or not self.depth:
            self.depth = await self._store.operations.depth()
            self._looked_at = monotonic()
        if not self.depth:
            if monotonic() - self.rate.at > MEMORY_SECONDS:
                self._size.forget()
                self._backlogs = 0
            return False
        await self._give_back()
        self.rate.resume(monotonic())
        self._token, self._claimed_at = uuid4(), monotonic()
        claimed = await self._claim(self._token)
        if claimed:
            size, completed = size_of(claimed), self.completed
            try:
                # Acks do not wait until the pushes of the same claim are stored.
                await self._apply([AckWork(one, self.acker) for one in claimed if one.claim.group_id])
                await self._apply([self._push_work(one) for one in claimed if not one.claim.group_id])
            except (Unavailable, BrokerFailed):
                self._size.failed(size)
                raise
            if done := self.completed - completed:  # what was refused tells nothing of the speed
                operations = sum(len(backlog.operations) for backlog in claimed)
                self._size.took(size * done // operations, monotonic() - self._claimed_at)
        if not self._is_overdue():
            self._token = None
        return bool(claimed)

    def _is_overdue(self) -> bool:
        """Return True if the claims are so old that they might end during another try."""
        return monotonic() - self._claimed_at > CLAIM_SECONDS

    def _push_work(self, backlog: ClaimedBacklog) -> PushWork:
        return PushWork(backlog, self._catalogue, self._announcer, self._store.id_time())

    async def _claim(self, token: UUID) -> list[ClaimedBacklog]:
        size_max = self._size.bytes
        backlogs = max(1, min(BACKLOGS_MAX, size_max // CLAIM_BYTES_MIN))
        run_bytes = min(RUN_BYTES_MAX, size_max // max(1, min(backlogs, self._backlogs)))
        claimed = await self._store.operations.claim(
            self._worker, backlogs=backlogs, run_bytes=run_bytes, run=run_bytes // OPERATION_BYTES, token=token
        )
        self._backlogs = len(claimed)
        operations = sum(len(backlog.operations) for backlog in claimed)
        more = room_beside(len(claimed), operations, size_of(claimed), size_max)
        if more:
            run_bytes = min(RUN_BYTES_MAX, max(CLAIM_BYTES_MIN, size_max // more))
            claimed += await self._store.operations.claim(
                self._worker, backlogs=more, run_bytes=run_bytes, run=run_bytes // OPERATION_BYTES, token=token
            )
        return claimed

    async def _give_back(self) -> None:
        """Backlogs that were claimed when the store fell silent need not wait for the claim to run out. Those that were
        applied after all are not claimed any more."""
        if self._token is not None:
            await self._store.operations.give_back(self._token)
            self._token = None

    async def _apply(self, works: Sequence[Work]) -> None:
        pending = list(works)
        for _ in range(_ROUNDS_MAX):
            if not pending or self._is_overdue():
                return  # what is left is given back
            ready: list[tuple[Work, Application]] = []
            for work in pending:
                prepared = await work.prepare()
                if isinstance(prepared, str):
                    await self._fail(work, prepared)
                else:
                    ready.append((work, prepared))
            results = await self._try([application for _, application in ready])
            pending = []
            refused: list[tuple[Work, FairlaneError]] = []
            done = self.completed
            for (work, application), result in zip(ready, results, strict=True):
                if isinstance(result, FairlaneError):
                    refused.append((work, result))
                elif application.applied_by(result):
                    self._applied(work, application, result)
                elif isinstance(result, Full):
                    await self._postpone(
                        work, f"the queue is full: {result.depth} of {result.capacity} places are taken"
                    )
                elif not isinstance(result, Lost) and work.met(result):
                    pending.append(work)
            for work, error in refused:
                if await self._is_left(work, error, others=self.completed > done):
                    pending.append(work)
        for work in pending:
            await self._postpone(work, "the store kept changing under this operation")

    async def _try(self, applications: list[Application]) -> list[ApplyResult | FairlaneError]:
        """Apply all applications in one call. If that fails, apply them one by one, so that a bad one fails alone.

        Stops once the claim is overdue, because it might expire during a call. Raises the error of the store if the
        store is unavailable and every application failed."""
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

    async def _is_left(self, work: Work, error: FairlaneError, *, others: bool) -> bool:
        """Whether work that the store refused, given alone, is to be tried again at once: its first operation alone.
        That one is charged with the error if there is a defect, or if the store applied `others` meanwhile."""
        if isinstance(error, LaneLocked):
            await self._postpone(work, str(error), BROKEN_OFF_DELAY_MS)
        elif work.only_first():
            return True
        elif isinstance(error, BrokerFailed) or others:
            await self._fail(work, str(error))
        else:
            await self._postpone(work, str(error), BROKEN_OFF_DELAY_MS)
        return False

    def _applied(self, work: Work, application: Application, result: ApplyResult) -> None:
        count = len(application.sequences)
        self.depth = max(0, self.depth - count)
        self.completed += count
        self._fewer.set()
        self.rate.did(count, monotonic())
        work.met(result)
        if isinstance(work, AckWork) and (lost := work.lost):
            self.acks_lost += len(lost)
            first = work.backlog.operations[0]
            fields = {"acks": len(lost), "queue": first.queue, "partition": first.partition_name, "group": first.group}
            text = "%(acks)d acks of queue %(queue)r, partition %(partition)r, group %(group)r were refused: %(error)s"
            log.warning(text, {**fields, "error": lost[0].error})

    async def _fail(self, work: Work, error: str) -> None:
        retries = work.backlog.operations[0].retries
        claim = work.backlog.claim
        failed = await self._store.operations.fail(claim, work.sequences, error, delay_ms=RETRY_DELAY_MS << retries)
        self.failed += failed
        if failed:
            ids = [str(one.id) for one in work.backlog.operations if one.sequence in work.sequences]
            shown = ", ".join(ids[:_IDS_LOGGED]) + (" and others" if len(ids) > _IDS_LOGGED else "")
            fields = {"queue": work.backlog.operations[0].queue, "error": error, "operation_ids": shown}
            log.error("operations of queue %(queue)r failed: %(error)s (%(operation_ids)s)", fields)

    async def _postpone(self, work: Work, error: str, delay_ms: int = FULL_DELAY_MS) -> None:
        claims: list[BacklogClaim] = [work.backlog.claim]
        self.postponed += await self._store.operations.postpone(claims, delay_ms=delay_ms, error=error)
