"""The drain of the journal: applies its entries to the store, backlog by backlog in turn, each in its order. A backlog
that cannot be had rests, and the others go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, cast

from fairlane.broker.ack import AckRequest
from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.broker.journal_acks import AckAnswers
from fairlane.broker.journal_codec import ack_request, push_request
from fairlane.broker.journal_operations import JournalOperations
from fairlane.broker.journal_route import JournalRoute
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import Flush
from fairlane.errors import BrokerFailed, FairlaneError, LaneLocked, Overloaded, SealError, ShuttingDown, Unavailable
from fairlane.model.outcome import AckOutcome, PushOutcome
from fairlane.runtime.backoff import backoff
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.journal import Backlog, Entry
from fairlane.store.contract.store import Store

_BACKLOGS_MAX = 500
_ENTRIES_MAX = 500
_BYTES_MAX = 4 * 1024 * 1024
_PAUSE_SECONDS = (0.1, 1.0)
"""Of a backlog that failed, or of all when the journal did: after the first failed try, and at most."""
_FLOOR_SECONDS = 1.0
_SNAPSHOT_SECONDS = 30.0
_ADOPT_SECONDS = 5.0
"""How often what processes of this directory left that are gone is looked for."""
_STRIKES_MAX = 5
"""An entry that the store refuses so often, while it takes others, is failed."""
_SLACK_SECONDS = 60

Outcomes = Sequence[PushOutcome] | Sequence[AckOutcome]

log = logging.getLogger(__name__)


class JournalDrain:
    def __init__(
        self,
        route: JournalRoute,
        store: Store,
        pusher: Pusher,
        acks: Callable[[list[AckRequest]], Awaitable[AckAnswers]],
        *,
        tenant: str,
        applied: Callable[[], None],
        compiled_specs: CompiledSpecs,
        operations: JournalOperations,
    ) -> None:
        """`applied` is called after messages went into the store."""
        self._route = route
        self._journal = route.journal
        self._store = store
        self._pusher = pusher
        self._acks = acks
        self._tenant = tenant
        self._applied = applied
        self._compiled_specs = compiled_specs
        self._operations = operations
        self._resting: dict[Backlog, tuple[int, float]] = {}
        """Backlogs that failed: how often, and until when they rest."""
        self._strikes: dict[int, tuple[int, int]] = {}
        """Entries that the store refused: how often, and how many others it had taken by then."""
        self._single = 0
        """So many backlogs go one by one: after a failure, so that an entry which can never be applied fails alone."""
        self._snapshot_at = 0.0
        self._adopt_at = time.monotonic() + _ADOPT_SECONDS
        self.drained = 0
        self.acks_lost = 0
        """Acks whose lease had ended; their messages are delivered again."""

    def save_soon(self) -> None:
        """What is known of queues and specs has changed."""
        self._snapshot_at = 0.0
        self._route.backlogs.added.set()

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        watch, added = self._route.watch, self._route.backlogs.added
        while True:
            added.clear()
            try:
                await self._look()
                failures = 0
            except ShuttingDown:
                return
            except FairlaneError as error:
                failures += 1
                if await self._route.is_there(str(error)):
                    log.warning("cannot drain the journal, retrying: %s", error)
                await asyncio.sleep(backoff(failures, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1]))
                continue
            if not watch.up:
                await watch.wait_back(_FLOOR_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await added.wait()

    def _pause(self) -> float:
        """Until the next look: sooner if a backlog has rested by then."""
        soonest = min((until for _, until in self._resting.values()), default=float("inf"))
        return min(_FLOOR_SECONDS, max(_PAUSE_SECONDS[0] / 2, soonest - time.monotonic()))

    async def _look(self) -> None:
        """Drain what can be drained. Raises what the journal says when it fails, or the store beside it."""
        route = self._route
        if time.monotonic() >= self._adopt_at:
            self._adopt_at = time.monotonic() + _ADOPT_SECONDS
            route.backlogs.hold(await self._journal.adopt())
        await self._journal.tell()
        if route.backlogs:
            await self._drain("ack")
            if route.journal_reason() != "maintenance":
                await self._drain("push")
        self._resting = {backlog: rest for backlog, rest in self._resting.items() if backlog in route.backlogs}
        if route.watch.up and time.monotonic() >= self._snapshot_at:
            await self._journal.save_catalogue(await self._store.queues.list(self._tenant))
            if self._compiled_specs.loaded:
                await self._journal.save_specs(self._compiled_specs.versions)
            self._snapshot_at = time.monotonic() + _SNAPSHOT_SECONDS

    async def _drain(self, kind: Literal["push", "ack"]) -> None:
        """Until no backlog has anything that can be applied now."""
        route = self._route
        put_off: set[Backlog] = set()

        def rests(backlog: Backlog) -> bool:
            return backlog in put_off or self._resting.get(backlog, (0, 0.0))[1] > time.monotonic()

        while route.watch.up:
            alone = self._single > 0
            self._single -= alone
            backlogs = route.backlogs.turn(kind, 1 if alone else _BACKLOGS_MAX, rests)
            if not backlogs:
                return
            entries = await self._journal.read(backlogs, entries_max=1 if alone else _ENTRIES_MAX, bytes_max=_BYTES_MAX)
            # Replayed before abandoned work has ended, its messages could be stored twice.
            unsettled = route.unsettled()
            todo = [entry for entry in entries if entry.backlog not in unsettled]
            put_off.update(unsettled.intersection(backlogs))
            if not entries:
                put_off.update(backlogs)  # they are about to get their entries
            if todo:
                await self._apply(kind, todo)
            if kind == "push" and route.journal_reason() == "maintenance":
                return

    async def _apply(self, kind: Literal["push", "ack"], entries: list[Entry]) -> None:
        """Into the store together. Each entry is removed or failed, or its backlog rests."""
        entries, bodies = await self._opened(entries)
        outcomes: Sequence[Outcomes | FairlaneError]
        try:
            outcomes = await (self._push(entries, bodies) if kind == "push" else self._ack(entries, bodies))
        except ShuttingDown:
            raise
        except FairlaneError as failure:
            outcomes = [failure] * len(entries)
        found = list(zip(entries, outcomes, strict=True))
        await self._end([(entry, outcome) for entry, outcome in found if not isinstance(outcome, FairlaneError)])
        failed: dict[Backlog, tuple[Entry, FairlaneError]] = {}
        for entry, outcome in found:
            if isinstance(outcome, FairlaneError):  # what follows it in its backlog was not tried, or in vain
                failed.setdefault(entry.backlog, (entry, outcome))
        doubts = [error for _, error in failed.values() if _is_of_the_store(error)]
        blame = len(failed) == 1
        if doubts:
            there = await self._route.is_there(str(doubts[0]))
            blame = blame and there
            self._single = len(failed) if there and not blame else 0
        for entry, error in failed.values():
            await self._refused(entry, error, blame=blame)

    async def _opened(self, entries: list[Entry]) -> tuple[list[Entry], list[bytes]]:
        """The entries that can be read, and their bodies in clear; those whose key is not here fail."""
        readable, bodies = [], []
        for entry in entries:
            try:
                bodies.append(self._journal.opened(entry))
                readable.append(entry)
            except SealError as error:
                await self._fail(entry, error)
        return readable, bodies

    async def _refused(self, entry: Entry, error: FairlaneError, *, blame: bool) -> None:
        """Fail an entry if it can never be applied; otherwise it is tried again when its backlog has rested. `blame`:
        the store is there, and was given nothing else."""
        if not isinstance(error, Unavailable | BrokerFailed | Overloaded):
            await self._fail(entry, error)
            return
        strikes, taken = self._strikes.get(entry.seq, (0, -1))
        if isinstance(error, BrokerFailed) or (blame and _is_of_the_store(error) and taken < self.drained):
            strikes += 1
            self._strikes[entry.seq] = (strikes, self.drained)
        if strikes >= _STRIKES_MAX:
            await self._fail(entry, error)
            return
        failures = self._resting.get(entry.backlog, (0, 0.0))[0] + 1
        pause = backoff(failures, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1])
        self._resting[entry.backlog] = (failures, time.monotonic() + pause)

    async def _push(self, entries: list[Entry], bodies: list[bytes]) -> list[Outcomes | FairlaneError]:
        """What became of each."""
        age_seconds = max(0, wall_clock() - entries[0].created_at) // 1_000_000 + _SLACK_SECONDS
        requests = [push_request(entry, body) for entry, body in zip(entries, bodies, strict=True)]
        flush = Flush(requests, in_order=True, dedup_least=age_seconds)
        outcomes = await self._pusher.run(flush)
        self._applied()
        return [
            outcome if isinstance(outcome, FairlaneError) else _refusal(outcome) or cast(list[PushOutcome], outcome)
            for outcome in outcomes
        ]

    async def _ack(self, entries: list[Entry], bodies: list[bytes]) -> list[Outcomes | FairlaneError]:
        found: list[Outcomes | FairlaneError] = []
        requests = [ack_request(entry, body) for entry, body in zip(entries, bodies, strict=True)]
        for entry, outcome in zip(entries, await self._acks(requests), strict=True):
            if isinstance(outcome, FairlaneError):
                found.append(outcome)
                continue
            if isinstance(outcome, Exception):
                raise outcome
            self._count_lost(entry, outcome)
            found.append(outcome)
        return found

    def _count_lost(self, entry: Entry, outcomes: Sequence[AckOutcome]) -> None:
        lost = [outcome for outcome in outcomes if not outcome.success]
        if lost:
            self.acks_lost += len(lost)
            log.warning(
                "%d acks from the journal were refused for partition %s, group %s: %s",
                len(lost),
                entry.backlog.partition,
                entry.backlog.name,
                lost[0].error,
            )

    async def _end(self, done: Sequence[tuple[Entry, Outcomes]]) -> None:
        """Entries that are applied can be looked up in the store before they are gone from the journal."""
        if not done:
            return
        await self._operations.record(done)
        entries = [entry for entry, _ in done]
        await self._journal.remove(entries)
        self._route.backlogs.let_go(entry.backlog for entry in entries)
        for entry in entries:
            self._resting.pop(entry.backlog, None)
            self._strikes.pop(entry.seq, None)
        count = sum(entry.messages for entry in entries)
        self.drained += count
        self._route.backlogs.left(count)

    async def _fail(self, entry: Entry, error: FairlaneError) -> None:
        log.error(
            "journal entry failed: %d messages cannot be stored in partition %r of queue %r: %s",
            entry.messages,
            entry.backlog.partition,
            entry.backlog.name,
            error,
        )
        await self._journal.fail(entry, str(error))
        self._route.backlogs.let_go([entry.backlog])
        self._strikes.pop(entry.seq, None)


def _refusal(outcomes: list[PushOutcome] | Exception) -> FairlaneError | None:
    """Why the items of an entry, which are all of one partition, were not stored."""
    if isinstance(outcomes, Exception):
        raise outcomes
    return next((outcome.error for outcome in outcomes if outcome.error is not None), None)


def _is_of_the_store(error: FairlaneError) -> bool:
    """Whether it may be that the store is away."""
    return isinstance(error, Unavailable) and not isinstance(error, LaneLocked)
