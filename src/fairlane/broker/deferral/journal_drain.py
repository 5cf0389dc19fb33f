"""The drain of the journal: turns its entries into operations in the store, under their ids, backlog by backlog.

A backlog that cannot be moved rests, and the others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.cells import missing_cells
from fairlane.broker.compiled_specs import AllSpecs
from fairlane.broker.credentials import Credentials
from fairlane.broker.deferral.drain import OPERATION_BYTES
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.open_operations import OpenOperations
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.flags import PUSHES_PAUSED, Flags
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
"""Number of operations in the store above which further entries wait in the journal, where queues take turns."""
_AHEAD_SECONDS = 1.0
"""Longest time that entries wait for fewer operations, because some operations may never be applied."""
_PAUSE_SECONDS = (0.1, 1.0)
"""First and longest pause of a backlog after a failure, or of all backlogs after a failure of the journal."""
_FLOOR_SECONDS = 1.0
_POLL_SECONDS = 0.1
"""Interval at which the draining process checks for entries of other processes."""
_LOAD_SECONDS = 0.25
"""Interval at which a long drain picks up new backlogs."""
_SNAPSHOT_SECONDS = 30.0
_ADOPT_SECONDS = 5.0
"""Interval of checks for files that dead brokers left in this directory."""
_STRIKES_MAX = 5
"""Number of failures of the store on an entry alone, after which the entry is failed."""

log = logging.getLogger(__name__)


class BacklogRotation:
    """Round-robin over backlogs: queues take turns (for acks: groups), and so do the backlogs of each."""

    def __init__(self) -> None:
        self._counts: dict[Backlog, int] = {}
        self._rotation: OrderedDict[tuple[str, str, str], OrderedDict[Backlog, None]] = OrderedDict()

    def __contains__(self, backlog: Backlog) -> bool:
        return backlog in self._counts

    def load(self, counts: Mapping[Backlog, int]) -> None:
        """Set the number of entries in each backlog. Backlogs that were there keep their place."""
        for backlog in self._counts.keys() - counts.keys():
            self._end(backlog)
        for backlog in counts:
            self._rotation.setdefault(backlog[:3], OrderedDict()).setdefault(backlog)
        self._counts = dict(counts)

    def take(self, backlogs: Iterable[Backlog]) -> None:
        """Count one entry less in each of these backlogs."""
        for backlog in backlogs:
            if backlog in self._counts:  # more may be read than existed at the last load
                self._counts[backlog] -= 1
                if not self._counts[backlog]:
                    del self._counts[backlog]
                    self._end(backlog)

    def _end(self, backlog: Backlog) -> None:
        backlogs = self._rotation[backlog[:3]]
        del backlogs[backlog]
        if not backlogs:
            del self._rotation[backlog[:3]]

    def next_backlogs(self, kind: str, most: int, resting: Callable[[Backlog], bool]) -> list[Backlog]:
        """Return the next backlogs, queue by queue, up to `most`, without resting ones.

        A backlog comes again only after all others.
        """
        found: list[Backlog] = []
        queues = deque((key, len(backlogs)) for key, backlogs in self._rotation.items() if key[0] == kind)
        while queues and len(found) < most:
            key, left = queues.popleft()
            backlogs = self._rotation[key]
            while left:
                left -= 1
                backlog = next(iter(backlogs))
                backlogs.move_to_end(backlog)
                if not resting(backlog):
                    found.append(backlog)
                    self._rotation.move_to_end(key)
                    queues.append((key, left))
                    break
        return found


class JournalDrain(Service):
    def __init__(
        self,
        journal: Journal,
        write_router: WriteRouter,
        store: Store,
        enqueuer: Enqueuer,
        open_operations: OpenOperations,
        flags: Flags,
        specs: AllSpecs,
        credentials: Credentials,
    ) -> None:
        super().__init__("journal", write_router.journal_changed)
        self._journal = journal
        self._write_router = write_router
        self._store = store
        self._enqueuer = enqueuer
        self._open_operations = open_operations
        self._flags = flags
        self._specs = specs
        self._credentials = credentials
        self._saved_keys: KnownKeys | None = None
        self._rotation = BacklogRotation()
        self._size = BatchSize(_BYTES_MIN, _BYTES_MAX)
        self._load_at = 0.0
        self._resting: dict[Backlog, tuple[int, float]] = {}
        """Failed backlogs, each with its number of failures and the end of its pause."""
        self._strikes: Counter[int] = Counter()
        """Failures of the store on an entry alone, by its number."""
        self._single = 0
        """Number of backlogs to move one by one after a failure, so that an entry that can never be moved fails alone.
        """
        self._snapshot_at = 0.0
        self._adopt_at = monotonic() + _ADOPT_SECONDS

    def save_soon(self) -> None:
        """Save the snapshot of queues and specs soon, because it has changed."""
        self._snapshot_at = 0.0
        self.wake()

    async def stop(self) -> None:
        """Stop at once. Entries that are still in the journal are moved by the next process."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                await self._rest(await self._drain_once())
                failures = 0
            except ShuttingDown:
                return
            except FairlaneError as error:
                failures += 1
                if await self._write_router.check_store(str(error)):
                    log.warning("cannot drain the journal, retrying: %(error)s", {"error": error})
                await asyncio.sleep(backoff(failures, base=_PAUSE_SECONDS[0], most=_PAUSE_SECONDS[1]))

    async def _drain_once(self) -> float:
        """Move what can be moved, and return how long to pause. Raises the errors of the journal and of the store."""
        write_router, now = self._write_router, monotonic()
        if write_router.health.up:
            self._flags.refresh_soon()
        await self._journal.publish_abandoned(write_router.timeout.abandoned_backlogs())
        if not self._journal.drains():
            return _FLOOR_SECONDS
        if now >= self._adopt_at:
            self._adopt_at = now + _ADOPT_SECONDS
            await self._journal.adopt()
        if self._journal.state().entries:
            self._load_at = 0.0
            write_router.rate.resume(now)
            await self._drain()
        elif now - write_router.rate.at > MEMORY_SECONDS:
            self._size.forget()
        self._resting = {backlog: rest for backlog, rest in self._resting.items() if backlog in self._rotation}
        if not write_router.health.up:
            await write_router.health.wait_available(_FLOOR_SECONDS)
            return 0.0
        keys = self._credentials.known
        if monotonic() >= self._snapshot_at or keys is not self._saved_keys:
            specs = self._specs.versions() if self._specs.loaded else None
            queues = await self._store.queues.all()
            self._write_router.catalogue.recollect(queues)
            # While a cell is down its queues are not listed, and those that were saved before are the better ones.
            await self._journal.save(queues=None if missing_cells(self._store) else queues, specs=specs, keys=keys)
            self._saved_keys = keys
            self._snapshot_at = monotonic() + _SNAPSHOT_SECONDS
        soonest = min((until for _, until in self._resting.values()), default=float("inf"))
        return min(_POLL_SECONDS, max(_PAUSE_SECONDS[0] / 2, soonest - monotonic()))

    def _pushes_are_paused(self) -> bool:
        return PUSHES_PAUSED in self._flags.on

    async def _drain(self) -> None:
        """Move entries until no backlog has any that can be moved now.

        Acks go first, also those that arrive while pushes are moved, because leases end and consumers wait.
        """
        put_off: set[Backlog] = set()

        def rests(backlog: Backlog) -> bool:
            return backlog in put_off or self._resting.get(backlog, (0, 0.0))[1] > monotonic()

        while self._write_router.health.up:
            if monotonic() >= self._load_at:
                self._rotation.load(await self._journal.backlogs())
                self._load_at = monotonic() + _LOAD_SECONDS
            put_off = self._unsettled()
            alone = self._single > 0
            self._single -= alone
            most = 1 if alone else max(1, min(_ENTRIES_MAX, self._size.bytes // OPERATION_BYTES))
            backlogs = self._rotation.next_backlogs("ack", most, rests)
            if not backlogs and not self._pushes_are_paused():
                backlogs = self._rotation.next_backlogs("push", most, rests)
            if not backlogs:
                return
            entries = await self._journal.read(backlogs, entries_max=most, bytes_max=self._size.bytes)
            if not entries:  # another process removed them
                self._load_at = 0.0
            unsettled = self._unsettled()  # entries are read after the work that they repeat was recorded
            if todo := [entry for entry in entries if entry.backlog not in unsettled]:
                await self._move(todo)
            await self._open_operations.wait_below(_AHEAD_MAX, _AHEAD_SECONDS)

    def _unsettled(self) -> set[Backlog]:
        """Return the backlogs of abandoned calls. Entries moved before such a call ends could be stored twice."""
        return self._write_router.timeout.abandoned_backlogs() | self._journal.unsettled()

    async def _move(self, entries: list[Entry]) -> None:
        """Move entries into the store together. Each entry is removed or failed, or its backlog rests."""
        found: Sequence[tuple[Entry, FairlaneError | None]]
        entries = [opened for entry in entries if (opened := await self._opened(entry)) is not None]
        began = monotonic()
        try:
            found = await self._enqueuer.move(entries)
            if size := _size_of(entry for entry, error in found if error is None):
                self._size.record(size, monotonic() - began)  # refused entries are answered at once, at any speed
        except ShuttingDown:
            raise
        except FairlaneError as failure:
            found = [(entry, failure) for entry in entries]
            if _is_of_the_store(failure):
                self._size.record_failure(_size_of(entries))
        await self._moved([entry for entry, error in found if error is None])
        failed: dict[Backlog, tuple[Entry, FairlaneError]] = {}
        for entry, error in found:
            if error is not None:  # later entries of its backlog were not tried, or in vain
                failed.setdefault(entry.backlog, (entry, error))
        doubts = [error for _, error in failed.values() if _is_of_the_store(error)]
        blame = len(failed) == 1
        if doubts:
            there = await self._write_router.check_store(str(doubts[0]))
            blame = blame and there
            self._single = len(failed) if there and not blame else 0
        for entry, error in failed.values():
            await self._refused(entry, error, blame=blame)

    async def _opened(self, entry: Entry) -> Entry | None:
        """Return the decrypted entry. An entry without a key here fails, and None is returned."""
        try:
            return msgspec.structs.replace(entry, body=self._journal.open_body(entry))
        except SealError as error:
            await self._fail(entry, error)
            return None

    async def _moved(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        await self._journal.remove(entries)
        self._rotation.take(entry.backlog for entry in entries)
        for entry in entries:
            self._resting.pop(entry.backlog, None)
            self._strikes.pop(entry.seq, None)
        count = sum(entry.messages for entry in entries)
        self._write_router.rate.record(count, monotonic())

    async def _refused(self, entry: Entry, error: FairlaneError, *, blame: bool) -> None:
        """Fail an entry if it can never be applied. Otherwise it is retried when its backlog has rested.

        `blame` is True if the store is available and was given nothing else.
        """
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
        self._rotation.take([entry.backlog])
        self._strikes.pop(entry.seq, None)


def _size_of(entries: Iterable[Entry]) -> int:
    """Return the approximate size of these entries in bytes."""
    return sum(len(entry.body) + OPERATION_BYTES for entry in entries)


def _is_of_the_store(error: FairlaneError) -> bool:
    """Return True if the store may be unavailable, or may be unable to take these entries."""
    return isinstance(error, BrokerFailed) or (isinstance(error, Unavailable) and not isinstance(error, LaneLocked))
