"""The drain of the journal: makes its entries operations in the store, under their ids, backlog by backlog in turn. A
backlog that cannot be had rests, and the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.compiled_specs import AllSpecs
from fairlane.broker.credentials import Credentials
from fairlane.broker.deferral.drain import OPERATION_BYTES, OperationDrain
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.route import Route
from fairlane.broker.flags import PUSH_MAINTENANCE, Flags
from fairlane.errors import BrokerFailed, FairlaneError, LaneLocked, Overloaded, SealError, ShuttingDown, Unavailable
from fairlane.runtime.backoff import backoff
from fairlane.runtime.batch_size import BatchSize
from fairlane.runtime.rate import MEMORY_SECONDS
from fairlane.runtime.service import Service
from fairlane.store.contract.journal import Backlog, Entry
from fairlane.store.contract.store import Store
from fairlane.store.families.api_keys import KnownKeys

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal

_ENTRIES_MAX = 500
_BYTES_MIN, _BYTES_MAX = 1024, 4 * 1024 * 1024
_AHEAD_MAX = 2_000
"""With so many operations in the store the next stay in the journal for a moment: there each queue has its turn."""
_AHEAD_SECONDS = 1.0
"""For at most this long: some may wait for what never comes, and the others go on."""
_PAUSE_SECONDS = (0.1, 1.0)
"""Of a backlog that failed, or of all when the journal did: after the first failed try, and at most."""
_FLOOR_SECONDS = 1.0
_POLL_SECONDS = 0.1
"""How often who drains looks for entries of other processes."""
_LOAD_SECONDS = 0.25
"""Interval at which a long drain picks up new backlogs."""
_SNAPSHOT_SECONDS = 30.0
_ADOPT_SECONDS = 5.0
"""How often what brokers of this directory left that are gone is looked for."""
_STRIKES_MAX = 5
"""An entry on which the store fails so often, given alone, is failed."""

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


class JournalDrain(Service):
    def __init__(
        self,
        journal: Journal,
        route: Route,
        store: Store,
        enqueuer: Enqueuer,
        operations: OperationDrain,
        flags: Flags,
        specs: AllSpecs,
        credentials: Credentials,
    ) -> None:
        super().__init__("journal")
        self._news = route.news
        self._journal = journal
        self._route = route
        self._store = store
        self._enqueuer = enqueuer
        self._operations = operations
        self._flags = flags
        self._specs = specs
        self._credentials = credentials
        self._saved_keys: KnownKeys | None = None
        self._turns = Turns()
        self._size = BatchSize(_BYTES_MIN, _BYTES_MAX)
        self._load_at = 0.0
        self._resting: dict[Backlog, tuple[int, float]] = {}
        """Backlogs that failed: how often, and until when they rest."""
        self._strikes: Counter[int] = Counter()
        """How often the store failed on an entry that was given alone, by its number."""
        self._single = 0
        """So many backlogs go one by one: after a failure, so that an entry which can never be moved fails alone."""
        self._snapshot_at = 0.0
        self._adopt_at = monotonic() + _ADOPT_SECONDS

    def save_soon(self) -> None:
        """What is known of queues and specs has changed."""
        self._snapshot_at = 0.0
        self.wake()

    async def stop(self) -> None:
        """At once: what was not removed from the journal is moved by whoever comes next."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                await self._rest(await self._look())
                failures = 0
            except ShuttingDown:
                return
            except FairlaneError as error:
                failures += 1
                if await self._route.is_there(str(error)):
                    log.warning("cannot drain the journal, retrying: %(error)s", {"error": error})
                await asyncio.sleep(backoff(failures, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1]))

    async def _look(self) -> float:
        """Move what can be moved; how long to rest then. Raises what the journal says when it fails, or the store."""
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
            await self._drain()
        elif now - route.rate.at > MEMORY_SECONDS:
            self._size.forget()
        self._resting = {backlog: rest for backlog, rest in self._resting.items() if backlog in self._turns}
        if not route.watch.up:
            await route.watch.wait_back(_FLOOR_SECONDS)
            return 0.0
        keys = self._credentials.known
        if monotonic() >= self._snapshot_at or keys is not self._saved_keys:
            specs = self._specs.versions() if self._specs.loaded else None
            queues = await self._store.queues.list()
            self._route.catalogue.recollect(queues)
            await self._journal.save(queues=queues, specs=specs, keys=keys)
            self._saved_keys = keys
            self._snapshot_at = monotonic() + _SNAPSHOT_SECONDS
        soonest = min((until for _, until in self._resting.values()), default=float("inf"))
        return min(_POLL_SECONDS, max(_PAUSE_SECONDS[0] / 2, soonest - monotonic()))

    def _is_maintained(self) -> bool:
        return PUSH_MAINTENANCE in self._flags.on

    async def _drain(self) -> None:
        """Move entries until no backlog has any that can be moved now. Acks go first, also those that come while pushes
        are moved: a lease ends, and its consumer waits."""
        put_off: set[Backlog] = set()

        def rests(backlog: Backlog) -> bool:
            return backlog in put_off or self._resting.get(backlog, (0, 0.0))[1] > monotonic()

        while self._route.watch.up:
            if monotonic() >= self._load_at:
                self._turns.load(await self._journal.backlogs())
                self._load_at = monotonic() + _LOAD_SECONDS
            put_off = self._unsettled()
            alone = self._single > 0
            self._single -= alone
            most = 1 if alone else max(1, min(_ENTRIES_MAX, self._size.bytes // OPERATION_BYTES))
            backlogs = self._turns.turn("ack", most, rests)
            if not backlogs and not self._is_maintained():
                backlogs = self._turns.turn("push", most, rests)
            if not backlogs:
                return
            entries = await self._journal.read(backlogs, entries_max=most, bytes_max=self._size.bytes)
            if not entries:  # somebody else removed them
                self._load_at = 0.0
            unsettled = self._unsettled()  # an entry is read after the work that it repeats was noted
            if todo := [entry for entry in entries if entry.backlog not in unsettled]:
                await self._move(todo)
            await self._operations.wait_below(_AHEAD_MAX, _AHEAD_SECONDS)

    def _unsettled(self) -> set[Backlog]:
        """Return the backlogs of abandoned work: moved before that has ended, its messages could be stored twice."""
        return self._route.patience.unsettled() | self._journal.unsettled()

    async def _move(self, entries: list[Entry]) -> None:
        """Into the store together. Each entry is removed or failed, or its backlog rests."""
        found: Sequence[tuple[Entry, FairlaneError | None]]
        entries = [opened for entry in entries if (opened := await self._opened(entry)) is not None]
        began = monotonic()
        try:
            found = await self._enqueuer.move(entries)
            if size := _size_of(entry for entry, error in found if error is None):
                self._size.took(size, monotonic() - began)  # refused entries are answered at once, at any speed
        except ShuttingDown:
            raise
        except FairlaneError as failure:
            found = [(entry, failure) for entry in entries]
            if _is_of_the_store(failure):
                self._size.failed(_size_of(entries))
        await self._moved([entry for entry, error in found if error is None])
        failed: dict[Backlog, tuple[Entry, FairlaneError]] = {}
        for entry, error in found:
            if error is not None:  # what follows it in its backlog was not tried, or in vain
                failed.setdefault(entry.backlog, (entry, error))
        doubts = [error for _, error in failed.values() if _is_of_the_store(error)]
        blame = len(failed) == 1
        if doubts:
            there = await self._route.is_there(str(doubts[0]))
            blame = blame and there
            self._single = len(failed) if there and not blame else 0
        for entry, error in failed.values():
            await self._refused(entry, error, blame=blame)

    async def _opened(self, entry: Entry) -> Entry | None:
        """The entry in clear; one whose key is not here fails."""
        try:
            return msgspec.structs.replace(entry, body=self._journal.opened(entry))
        except SealError as error:
            await self._fail(entry, error)
            return None

    async def _moved(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        await self._journal.remove(entries)
        self._turns.take(entry.backlog for entry in entries)
        for entry in entries:
            self._resting.pop(entry.backlog, None)
            self._strikes.pop(entry.seq, None)
        count = sum(entry.messages for entry in entries)
        self._route.rate.did(count, monotonic())

    async def _refused(self, entry: Entry, error: FairlaneError, *, blame: bool) -> None:
        """Fail an entry if it can never be applied; otherwise it is tried again when its backlog has rested. `blame`:
        the store is there, and was given nothing else."""
        if not isinstance(error, Unavailable | BrokerFailed | Overloaded):
            await self._fail(entry, error)
            return
        self._strikes[entry.seq] += blame and isinstance(error, BrokerFailed)
        if self._strikes[entry.seq] >= _STRIKES_MAX:
            await self._fail(entry, error)
            return
        failures = self._resting.get(entry.backlog, (0, 0.0))[0] + 1
        pause = backoff(failures, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1])
        self._resting[entry.backlog] = (failures, monotonic() + pause)

    async def _fail(self, entry: Entry, error: FairlaneError) -> None:
        kind, _, name, partition = entry.backlog
        fields = {"verb": kind, "queue": name, "partition": partition, "error": error}
        text = "journal entry failed: a %(verb)s of %(queue)r, partition %(partition)r, cannot be applied: %(error)s"
        log.error(text, fields)
        await self._journal.fail(entry, str(error))
        self._turns.take([entry.backlog])
        self._strikes.pop(entry.seq, None)


def _size_of(entries: Iterable[Entry]) -> int:
    """Return about how many bytes it takes to move these."""
    return sum(len(entry.body) + OPERATION_BYTES for entry in entries)


def _is_of_the_store(error: FairlaneError) -> bool:
    """Whether it may be that the store is away, or that it cannot take what it was given."""
    return isinstance(error, BrokerFailed) or (isinstance(error, Unavailable) and not isinstance(error, LaneLocked))
