"""Applies what the journal holds, in the order of each lane, as soon as the store takes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, cast

from fairlane.engine.ack import AckRequest
from fairlane.engine.draft import Flush
from fairlane.engine.journal_acks import AckAnswers
from fairlane.engine.journal_operations import JournalOperations
from fairlane.engine.kept import ack_request, push_request
from fairlane.engine.programs import Programs
from fairlane.engine.push import Pusher
from fairlane.engine.shelter import Shelter
from fairlane.errors import FairlaneError, Overloaded, ShuttingDown, Unavailable
from fairlane.model.outcome import AckOutcome, PushOutcome
from fairlane.runtime.backoff import backoff
from fairlane.runtime.clock import wall_clock
from fairlane.store.base import Store
from fairlane.store.journal import Entry, Lane

_ENTRIES_MAX = 500
_BYTES_MAX = 4 * 1024 * 1024
_PAUSE_SECONDS = (0.1, 1.0)
"""After the first failed try, and at most."""
_FLOOR_SECONDS = 1.0
_SNAPSHOT_SECONDS = 30.0
_ADOPT_SECONDS = 5.0
"""How often what processes of this directory left that are gone is looked for."""
_STRIKES_MAX = 5
"""An entry that the store refuses so often, while it takes others, is set aside."""
_SLACK_SECONDS = 60

log = logging.getLogger(__name__)


class JournalDrain:
    def __init__(
        self,
        shelter: Shelter,
        store: Store,
        pusher: Pusher,
        acks: Callable[[list[AckRequest]], Awaitable[AckAnswers]],
        *,
        tenant: str,
        applied: Callable[[], None],
        programs: Programs,
        operations: JournalOperations,
    ) -> None:
        """`applied` is called after messages went into the store."""
        self._shelter = shelter
        self._journal = shelter.journal
        self._store = store
        self._pusher = pusher
        self._acks = acks
        self._tenant = tenant
        self._applied = applied
        self._programs = programs
        self._operations = operations
        self._strikes: Counter[int] = Counter()
        self._single = 0
        """So many entries go one by one: after a failure, so that one that can never be applied fails alone."""
        self._snapshot_at = 0.0
        self._adopt_at = time.monotonic() + _ADOPT_SECONDS
        self.drained = 0
        self.acks_lost = 0
        """Acks whose lease had ended; their messages are delivered again."""

    def save_soon(self) -> None:
        """What is known of queues and specs has changed."""
        self._snapshot_at = 0.0
        self._shelter.held.added.set()

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        watch, added = self._shelter.watch, self._shelter.held.added
        while True:
            added.clear()
            try:
                await self._look()
                failures = 0
            except ShuttingDown:
                return
            except FairlaneError as error:
                watch.lost(str(error))
                failures += 1
                await asyncio.sleep(backoff(failures, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1]))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLOOR_SECONDS):
                    await added.wait()

    async def _look(self) -> None:
        """Drain what can be drained. Raises what the store says when it does not answer."""
        shelter = self._shelter
        if time.monotonic() >= self._adopt_at:
            self._adopt_at = time.monotonic() + _ADOPT_SECONDS
            shelter.held.hold(await self._journal.adopt())
        if not shelter.watch.up:
            await self._store.switches.on()
        # A flush that nobody waited for may yet be applied; replayed before it, its messages could be stored twice.
        while left_behind := shelter.patience.left_behind:
            await asyncio.wait(set(left_behind), timeout=_FLOOR_SECONDS)
        await self._journal.quiet()
        if shelter.held:
            await self._drain("ack")
            if shelter.diverted() != "maintenance":
                await self._drain("push")
        shelter.watch.back()
        if time.monotonic() >= self._snapshot_at:
            await self._journal.save_catalogue(await self._store.queues.list(self._tenant))
            if self._programs.loaded:
                await self._journal.save_specs(self._programs.versions)
            self._snapshot_at = time.monotonic() + _SNAPSHOT_SECONDS

    async def _drain(self, kind: Literal["push", "ack"]) -> None:
        after, moved = 0, False
        stuck: set[Lane] = set()
        refused: list[tuple[Entry, Unavailable]] = []
        while entries := await self._journal.read(
            kind, after, entries_max=1 if self._single else _ENTRIES_MAX, bytes_max=_BYTES_MAX
        ):
            after = entries[-1].seq
            todo = [entry for entry in entries if entry.lane not in stuck]
            alone = self._single > 0
            self._single -= alone
            try:
                if todo:
                    await (self._push(todo, stuck) if kind == "push" else self._ack(todo))
                    moved = True
                    self._shelter.watch.back()
            except Unavailable as error:
                if not alone:
                    self._single = len(todo) if len(todo) > 1 else 3
                    raise
                stuck.add(todo[0].lane)
                refused.append((todo[0], error))
                if not moved and len(refused) >= 3:
                    raise
            if kind == "push" and self._shelter.diverted() == "maintenance":
                break
        await self._judge(refused, moved=moved)

    async def _judge(self, refused: Sequence[tuple[Entry, Unavailable]], *, moved: bool) -> None:
        """A store that took nothing is away; one that took others refuses these."""
        if not refused:
            self._strikes.clear()
        elif not moved:
            raise refused[0][1]
        for entry, error in refused:
            self._strikes[entry.seq] += 1
            if self._strikes[entry.seq] >= _STRIKES_MAX:
                await self._set_aside(entry, error)

    async def _push(self, entries: list[Entry], stuck: set[Lane]) -> None:
        """Into the store together; each entry is removed, waits for room, or is set aside."""
        age_seconds = max(0, wall_clock() - entries[0].created_at) // 1_000_000 + _SLACK_SECONDS
        flush = Flush([push_request(entry) for entry in entries], in_order=True, dedup_least=age_seconds)
        outcomes = await self._pusher.run(flush)
        self._applied()
        done: list[tuple[Entry, Sequence[PushOutcome]]] = []
        away: Unavailable | None = None
        for entry, outcome in zip(entries, outcomes, strict=True):
            error = outcome if isinstance(outcome, FairlaneError) else _refused(outcome)
            if error is None:
                done.append((entry, cast(list[PushOutcome], outcome)))
            elif isinstance(error, Overloaded):
                stuck.add(entry.lane)
            elif isinstance(error, Unavailable):
                away = error
            else:
                await self._set_aside(entry, error)
        await self._end(done)
        if away is not None:
            raise away

    async def _ack(self, entries: list[Entry]) -> None:
        outcomes = await self._acks([ack_request(entry) for entry in entries])
        done: list[tuple[Entry, Sequence[AckOutcome]]] = []
        for entry, outcome in zip(entries, outcomes, strict=True):
            if isinstance(outcome, Exception):
                raise outcome
            self._count_lost(entry, outcome)
            done.append((entry, outcome))
        await self._end(done)

    def _count_lost(self, entry: Entry, outcomes: Sequence[AckOutcome]) -> None:
        lost = [outcome for outcome in outcomes if not outcome.success]
        if lost:
            self.acks_lost += len(lost)
            log.warning(
                "%d acks from the journal came too late for partition %s, group %s: %s",
                len(lost),
                entry.lane.partition,
                entry.lane.name,
                lost[0].error,
            )

    async def _end(self, done: Sequence[tuple[Entry, Sequence[PushOutcome] | Sequence[AckOutcome]]]) -> None:
        """Entries that are applied can be looked up in the store before they are gone from the journal."""
        if done:
            await self._operations.record(done)
            entries = [entry for entry, _ in done]
            await self._journal.remove(entries)
            self._shelter.held.let_go(entry.lane for entry in entries)
            count = sum(entry.messages for entry in entries)
            self.drained += count
            self._shelter.held.left(count)

    async def _set_aside(self, entry: Entry, error: FairlaneError) -> None:
        log.error(
            "%d messages from the journal cannot be stored in partition %r of queue %r and are set aside: %s",
            entry.messages,
            entry.lane.partition,
            entry.lane.name,
            error,
        )
        await self._journal.fail(entry, str(error))
        self._shelter.held.let_go([entry.lane])
        self._strikes.pop(entry.seq, None)


def _refused(outcomes: list[PushOutcome] | Exception) -> FairlaneError | None:
    """Why the items of an entry, which are all of one partition, were not stored."""
    if isinstance(outcomes, Exception):
        raise outcomes
    return next((outcome.error for outcome in outcomes if outcome.error is not None), None)
