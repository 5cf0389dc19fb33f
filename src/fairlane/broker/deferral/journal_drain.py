"""The drain of the journal: applies its entries to the store, backlog by backlog in turn, each in its order. A backlog
that cannot be had rests, and the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, cast

from fairlane.broker.ack import Acker
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.broker.deferral.drain import Drain
from fairlane.broker.deferral.entries import ack_request, applied_operation, push_request
from fairlane.broker.deferral.route import Route
from fairlane.broker.flags import PUSH_MAINTENANCE, Flags
from fairlane.broker.push import Announcer, Pusher
from fairlane.broker.push_batch import Flush
from fairlane.errors import BrokerFailed, FairlaneError, LaneLocked, Overloaded, SealError, ShuttingDown, Unavailable
from fairlane.model.outcome import AckOutcome, PushOutcome
from fairlane.runtime.backoff import backoff
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.journal import Backlog, Entry
from fairlane.store.contract.operations import AppliedOperation
from fairlane.store.contract.store import Store

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal

_BACKLOGS_MAX = 500
_ENTRIES_MAX = 500
_BYTES_MAX = 4 * 1024 * 1024
_PAUSE_SECONDS = (0.1, 1.0)
"""Of a backlog that failed, or of all when the journal did: after the first failed try, and at most."""
_FLOOR_SECONDS = 1.0
_POLL_SECONDS = 0.1
"""How often who drains looks for entries of other processes."""
_LOAD_SECONDS = 0.25
"""How often their backlogs are added while there is much to drain."""
_SNAPSHOT_SECONDS = 30.0
_ADOPT_SECONDS = 5.0
"""How often what brokers of this directory left that are gone is looked for."""
_STRIKES_MAX = 5
"""An entry that the store refuses so often, while it takes others, is failed."""
_SLACK_SECONDS = 60
_UNRECORDED_MAX: Final = 10_000

Kind = Literal["push", "ack"]
Outcomes = Sequence[PushOutcome] | Sequence[AckOutcome]

log = logging.getLogger(__name__)


class Turns:
    """The turns of backlogs: those of each queue (of acks: of each group) one after the other, and queues too."""

    def __init__(self) -> None:
        self._counts: dict[Backlog, int] = {}
        self._turns: OrderedDict[tuple[str, str, str], OrderedDict[Backlog, None]] = OrderedDict()

    def __contains__(self, backlog: Backlog) -> bool:
        return backlog in self._counts

    def load(self, counts: Mapping[Backlog, int]) -> None:
        """So many entries are in each, and in no others. Those that were there keep their turn."""
        for backlog in self._counts.keys() - counts.keys():
            self._end(backlog)
        for backlog in counts:
            self._turns.setdefault(backlog[:3], OrderedDict()).setdefault(backlog)
        self._counts = dict(counts)

    def take(self, backlogs: Iterable[Backlog]) -> None:
        """One entry less is in each."""
        for backlog in backlogs:
            if backlog in self._counts:  # more may be read than there were at the last load
                self._counts[backlog] -= 1
                if not self._counts[backlog]:
                    del self._counts[backlog]
                    self._end(backlog)

    def _end(self, backlog: Backlog) -> None:
        backlogs = self._turns[backlog[:3]]
        del backlogs[backlog]
        if not backlogs:
            del self._turns[backlog[:3]]

    def turn(self, kind: str, most: int, resting: Callable[[Backlog], bool]) -> list[Backlog]:
        """The backlogs whose turn it is, of each queue one after the other; none twice, and none that rests. It is not
        their turn again before all others had theirs."""
        found: list[Backlog] = []
        queues = deque((key, len(backlogs)) for key, backlogs in self._turns.items() if key[0] == kind)
        while queues and len(found) < most:
            key, left = queues.popleft()
            backlogs = self._turns[key]
            while left:
                left -= 1
                backlog = next(iter(backlogs))
                backlogs.move_to_end(backlog)
                if not resting(backlog):
                    found.append(backlog)
                    self._turns.move_to_end(key)
                    queues.append((key, left))
                    break
        return found


class JournalDrain(Drain):
    def __init__(
        self,
        journal: Journal,
        route: Route,
        store: Store,
        catalogue: Catalogue,
        pusher: Pusher,
        acker: Acker,
        announcer: Announcer,
        flags: Flags,
        compiled_specs: CompiledSpecs,
        *,
        tenant: str,
    ) -> None:
        super().__init__("journal")
        self._news = route.news
        self._journal = journal
        self._route = route
        self._store = store
        self._catalogue = catalogue
        self._pusher = pusher
        self._acker = acker
        self._announcer = announcer
        self._flags = flags
        self._compiled_specs = compiled_specs
        self._tenant = tenant
        self._turns = Turns()
        self._load_at = 0.0
        self._resting: dict[Backlog, tuple[int, float]] = {}
        """Backlogs that failed: how often, and until when they rest."""
        self._strikes: dict[int, tuple[int, int]] = {}
        """Entries that the store refused: how often, and how many others it had taken by then."""
        self._single = 0
        """So many backlogs go one by one: after a failure, so that an entry which can never be applied fails alone."""
        self._unrecorded: deque[AppliedOperation] = deque(maxlen=_UNRECORDED_MAX)
        """Applied, but the store fell silent before they could be recorded."""
        self._snapshot_at = 0.0
        self._adopt_at = monotonic() + _ADOPT_SECONDS
        self.drained = 0
        self.acks_lost = 0
        """Acks whose lease had ended; their messages are delivered again."""

    def save_soon(self) -> None:
        """What is known of queues and specs has changed."""
        self._snapshot_at = 0.0
        self.wake()

    async def stop(self) -> None:
        """At once: what was not removed from the journal is applied by whoever comes next."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self) -> float:
        """Drain what can be drained. Raises what the journal says when it fails, or the store beside it."""
        route, now = self._route, monotonic()
        if route.watch.up:
            self._flags.look_soon()
        await self._journal.tell(route.patience.unsettled())
        if not self._journal.drains():
            return _FLOOR_SECONDS
        if now >= self._adopt_at:
            self._adopt_at = now + _ADOPT_SECONDS
            await self._journal.adopt()
        if self._journal.state().entries:
            self._load_at = 0.0
            route.rate.resume(now)
            await self._drain("ack")
            if not self._is_maintained():
                await self._drain("push")
        self._resting = {backlog: rest for backlog, rest in self._resting.items() if backlog in self._turns}
        if not route.watch.up:
            await route.watch.wait_back(_FLOOR_SECONDS)
            return 0.0
        if monotonic() >= self._snapshot_at:
            specs = self._compiled_specs.versions if self._compiled_specs.loaded else None
            await self._journal.save(queues=await self._store.queues.list(self._tenant), specs=specs)
            self._snapshot_at = monotonic() + _SNAPSHOT_SECONDS
        soonest = min((until for _, until in self._resting.values()), default=float("inf"))
        return min(_POLL_SECONDS, max(_PAUSE_SECONDS[0] / 2, soonest - monotonic()))

    async def _away(self, error: FairlaneError, times: int) -> float:
        if await self._route.is_there(str(error)):
            log.warning("cannot drain the journal, retrying: %s", error)
        await asyncio.sleep(backoff(times, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1]))
        return 0.0

    def _is_maintained(self) -> bool:
        return PUSH_MAINTENANCE in self._flags.on

    async def _drain(self, kind: Kind) -> None:
        """Until no backlog has anything that can be applied now."""
        route = self._route
        put_off: set[Backlog] = set()

        def rests(backlog: Backlog) -> bool:
            return backlog in put_off or self._resting.get(backlog, (0, 0.0))[1] > monotonic()

        while route.watch.up:
            if monotonic() >= self._load_at:
                self._turns.load(await self._journal.backlogs())
                self._load_at = monotonic() + _LOAD_SECONDS
            alone = self._single > 0
            self._single -= alone
            backlogs = self._turns.turn(kind, 1 if alone else _BACKLOGS_MAX, rests)
            if not backlogs:
                return
            entries = await self._journal.read(backlogs, entries_max=1 if alone else _ENTRIES_MAX, bytes_max=_BYTES_MAX)
            # Replayed before abandoned work has ended, its messages could be stored twice.
            unsettled = route.patience.unsettled() | self._journal.unsettled()
            todo = [entry for entry in entries if entry.backlog not in unsettled]
            put_off.update(unsettled.intersection(backlogs))
            if not entries:
                put_off.update(backlogs)
            if todo:
                await self._apply(kind, todo)
            if kind == "push" and self._is_maintained():
                return

    async def _apply(self, kind: Kind, entries: list[Entry]) -> None:
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
        self._resting[entry.backlog] = (failures, monotonic() + pause)

    async def _push(self, entries: list[Entry], bodies: list[bytes]) -> list[Outcomes | FairlaneError]:
        """What became of each."""
        age_seconds = max(0, wall_clock() - entries[0].created_at) // 1_000_000 + _SLACK_SECONDS
        requests = [push_request(entry, body) for entry, body in zip(entries, bodies, strict=True)]
        flush = Flush(requests, in_order=True, dedup_least=age_seconds)
        outcomes = await self._pusher.run(flush)
        self._announcer.flushed()
        return [
            outcome if isinstance(outcome, FairlaneError) else _refusal(outcome) or cast(list[PushOutcome], outcome)
            for outcome in outcomes
        ]

    async def _ack(self, entries: list[Entry], bodies: list[bytes]) -> list[Outcomes | FairlaneError]:
        found: list[Outcomes | FairlaneError] = []
        requests = [ack_request(entry, body) for entry, body in zip(entries, bodies, strict=True)]
        for entry, outcome in zip(entries, await self._acker.flush(requests), strict=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, FairlaneError):
                raise outcome
            if not isinstance(outcome, FairlaneError):
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
        await self._record(done)
        entries = [entry for entry, _ in done]
        await self._journal.remove(entries)
        self._turns.take(entry.backlog for entry in entries)
        for entry in entries:
            self._resting.pop(entry.backlog, None)
            self._strikes.pop(entry.seq, None)
        count = sum(entry.messages for entry in entries)
        self.drained += count
        self._route.rate.did(count, monotonic())

    async def _record(self, done: Sequence[tuple[Entry, Outcomes]]) -> None:
        """Let the store know what became of entries. Called before they leave the journal, so that a broker that dies
        in between records them again, and their id is found throughout. What became an operation of the store is known
        there under the same id."""
        self._unrecorded += [
            applied_operation(entry, outcomes, self._catalogue)
            for entry, outcomes in done
            if str(entry.id) not in [one.operation_id for one in outcomes]
        ]
        if not self._unrecorded:
            return
        try:
            await self._store.operations.record(list(self._unrecorded))
        except FairlaneError as error:
            # They are stored all the same; whoever asks for them is told that there is no such operation, for now.
            log.warning("cannot record %d applied operations of the journal: %s", len(self._unrecorded), error)
            return
        self._unrecorded.clear()

    async def _fail(self, entry: Entry, error: FairlaneError) -> None:
        log.error(
            "journal entry failed: %d messages cannot be stored in partition %r of queue %r: %s",
            entry.messages,
            entry.backlog.partition,
            entry.backlog.name,
            error,
        )
        await self._journal.fail(entry, str(error))
        self._turns.take([entry.backlog])
        self._strikes.pop(entry.seq, None)


def _refusal(outcomes: list[PushOutcome] | Exception) -> FairlaneError | None:
    """Why the items of an entry, which are all of one partition, were not stored."""
    if isinstance(outcomes, Exception):
        raise outcomes
    return next((outcome.error for outcome in outcomes if outcome.error is not None), None)


def _is_of_the_store(error: FairlaneError) -> bool:
    """Whether it may be that the store is away."""
    return isinstance(error, Unavailable) and not isinstance(error, LaneLocked)
