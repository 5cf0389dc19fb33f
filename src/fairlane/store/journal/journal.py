"""The journal of a broker on an SQLite file of its own: one fsync for all that is to be written, like the store.

Each process appends to the file by itself, so that what is accepted anywhere is durable, in one order, and seen by all
before its caller is answered. One process drains it; when it goes away, the next that looks takes its place."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import apsw
import msgspec

from fairlane.errors import FairlaneError, JournalFull, SealError, StoreFull, StoreUnavailable
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.queue import Queue
from fairlane.runtime.clock import steady_clock
from fairlane.runtime.process import LockFile
from fairlane.store.contract.journal import Backlog, Entry, JournalState, NewEntry
from fairlane.store.families.api_keys import KnownKeys
from fairlane.store.journal.files import SQL, Leftover, Use, choose, connect, join, member_lock
from fairlane.store.keyring import Keyring
from fairlane.store.sqlite.checkpoints import Checkpointer
from fairlane.store.sqlite.connection import CHECKPOINT_PAGES, is_safe, open_reader
from fairlane.store.sqlite.faults import translate
from fairlane.store.sqlite.rows import first, rows, value, write_rows
from fairlane.store.sqlite.writer import Writer
from fairlane.wire.base import decoder, encode
from fairlane.wire.specs import SpecDetail

RETRY_SECONDS: Final = 5.0
_LOG_PAGES_MAX: Final = 100_000  # 400 MB
_SEALED: Final = b"\xc1sealed"
"""What begins so is no MessagePack, as bodies in clear are."""
_log = logging.getLogger(__name__)


class Journal:
    """The journal of a broker, as one of its processes has it. What is not async answers at once, for all processes: an
    entry that anybody was told of is seen."""

    def __init__(
        self, db: apsw.Connection, use: Use, member: tuple[int, LockFile], bytes_max: int, keyring: Keyring | None
    ) -> None:
        self._path = use.path
        self._use = use
        self._number, self._alive = member
        self._reader = open_reader(str(use.path))
        self.version: Callable[[], int] = partial(self._reader.pragma, "data_version")
        """A number that is another whenever the journal was changed, by whichever process."""
        self._checkpoints: Checkpointer | None = None
        if is_safe():
            self._checkpoints = Checkpointer(db, pages=CHECKPOINT_PAGES, pages_max=_LOG_PAGES_MAX)
        self._writer = Writer(db, steady_clock())
        self._seal = keyring.local() if keyring is not None else None
        self.sealed = keyring is not None
        """Whether its entries cannot be read in its file."""
        self._draining: LockFile | None = None
        self._unsettled: Collection[Backlog] | None = set()
        """The backlogs that were told as abandoned; None when that is not known."""
        self._bytes_max = bytes_max
        self._closed = False

    @classmethod
    async def open(cls, directory: str, *, bytes_max: int, store: str, keyring: Keyring | None = None) -> Journal:
        """For what is to go to `store`; sealed with a `keyring`, so that which queues are encrypted need not be known.
        StoreUnavailable if no file there can be had, StoreUnsafe if it would not be durable."""
        use = await asyncio.to_thread(choose, Path(directory), store)
        try:
            member = await asyncio.to_thread(join, Path(directory))
            db = await asyncio.to_thread(connect, use.path)
        except (apsw.Error, OSError) as error:
            use.end()
            raise translate(error) if isinstance(error, apsw.Error) else StoreUnavailable(str(error)) from error
        except BaseException:
            use.end()
            raise
        journal = cls(db, use, member, bytes_max, keyring)
        # Who had the number before is gone.
        await journal._writer.run(lambda db, _: rows(db, SQL["settle"], journal._number))
        if journal.drains():
            await journal.adopt()
        return journal

    def state(self) -> JournalState:
        entries, messages, size, failed, oldest_at, backlogs = first(self._reader, SQL["totals"])
        return JournalState(
            entries=entries,
            messages=messages,
            bytes=size,
            bytes_max=self._bytes_max,
            failed=failed,
            oldest_at=oldest_at,
            backlogs=backlogs,
        )

    def room(self) -> int:
        """Bytes that `append` would still take."""
        return self._bytes_max - int(value(self._reader, SQL["bytes"]))

    def holds(self, backlogs: Iterable[Backlog]) -> set[Backlog]:
        """Those that have pending entries."""
        return set(_counts(self._reader, list(backlogs)))

    def count(self, backlog: Backlog) -> int:
        """Return how many pending entries a backlog has."""
        return _counts(self._reader, [backlog]).get(backlog, 0)

    def drains(self) -> bool:
        """Whether this is the process that drains the journal. It is, from now on, if no other does."""
        if self._draining is None:
            try:
                self._draining = LockFile(f"{self._path}.drain.lock")
            except OSError:
                return False
        return True

    def unsettled(self) -> set[Backlog]:
        """The backlogs in which other processes have work under way that may yet be applied: from before an entry of
        theirs is read until they said that it ended, or are gone."""
        found: dict[int, set[Backlog]] = {}
        for member, *backlog in rows(self._reader, SQL["abandoned"], self._number):
            found.setdefault(member, set()).add(Backlog(*backlog))
        return set().union(*[backlogs for member, backlogs in found.items() if self._lives(member)])

    def _lives(self, member: int) -> bool:
        try:
            member_lock(self._path.parent, member).release()
        except BlockingIOError:
            return True
        return False

    def opened(self, entry: Entry) -> bytes:
        """The body of an entry that was read, in clear. SealError if it was sealed by a key that is not here."""
        if not entry.body.startswith(_SEALED):
            return entry.body
        if self._seal is None:
            raise SealError("a journal entry is sealed, and this broker has no key: set the one that sealed it")
        return self._seal.open(entry.body.removeprefix(_SEALED), _context(entry.backlog, entry.id))

    def _body(self, entry: NewEntry) -> bytes:
        if self._seal is None:
            return entry.body
        return _SEALED + self._seal.seal(entry.body, _context(entry.backlog, entry.id))

    async def append(self, entries: Sequence[NewEntry], abandoned: Collection[Backlog] = ()) -> dict[Backlog, int]:
        """Append the entries, all or none; durable when it returns, and in the order of the calls. How many are now in
        each of their backlogs. `abandoned`: see `tell`.

        JournalFull if they do not fit, on the disk or below the limit; StoreUnavailable if the file cannot be
        written."""
        values = [(*entry.backlog, entry.messages, self._body(entry), entry.id.bytes) for entry in entries]
        before, self._unsettled = self._unsettled, abandoned
        try:
            return await self._writer.run(lambda db, now: self._append(db, now, values, before != abandoned, abandoned))
        except BaseException as error:
            self._unsettled = None
            if isinstance(error, StoreFull):
                raise JournalFull(f"the journal cannot grow: {error}", retry_after=RETRY_SECONDS) from None
            raise

    def _append(
        self,
        db: apsw.Connection,
        now: int,
        values: Sequence[tuple[Any, ...]],
        tell: bool,
        abandoned: Collection[Backlog],
    ) -> dict[Backlog, int]:
        write_rows(db, SQL["append"], [(*some, now, None, id) for *some, id in values])
        taken = value(db, SQL["bytes"])
        if taken > self._bytes_max:
            raise JournalFull(
                f"the journal is full: of {self._bytes_max} bytes these would take {taken}; it empties when the store "
                "is back",
                retry_after=RETRY_SECONDS,
            )
        if tell:
            self._tell(db, abandoned)
        return _counts(db, list({Backlog(*some[:4]) for some in values}))

    def _tell(self, db: apsw.Connection, abandoned: Collection[Backlog]) -> None:
        rows(db, SQL["settle"], self._number)
        write_rows(db, SQL["abandon"], [(self._number, *backlog) for backlog in abandoned])

    async def tell(self, abandoned: Collection[Backlog]) -> None:
        """Tell who drains in which backlogs this process has abandoned work that may yet be applied."""
        if abandoned == self._unsettled:
            return
        self._unsettled = abandoned
        try:
            await self._writer.run(lambda db, _: self._tell(db, abandoned))
        except BaseException:
            self._unsettled = None
            raise

    async def backlogs(self) -> dict[Backlog, int]:
        """How many pending entries each backlog has."""
        found = await self._writer.run(lambda db, _: rows(db, SQL["backlogs"]))
        return {Backlog(*backlog): count for *backlog, count in found}

    async def read(self, backlogs: Sequence[Backlog], *, entries_max: int, bytes_max: int) -> list[Entry]:
        """The next entries of these backlogs, each backlog's from its first on, in the order they were accepted; at
        least one if there is any. Each backlog has one before any has two."""
        return await self._writer.run(lambda db, _: _read(db, backlogs, entries_max, bytes_max))

    async def remove(self, entries: Sequence[Entry]) -> None:
        """They are applied, or somebody gave them up."""
        await self._writer.run(lambda db, _: rows(db, SQL["remove"], _json([entry.seq for entry in entries])))

    async def fail(self, entry: Entry, error: str) -> None:
        """Mark one as failed, with the reason."""

        def fail(db: apsw.Connection, now: int) -> None:
            for *some, _, id in rows(db, SQL["take"], entry.seq):
                rows(db, SQL["put_back"], *some, error, id)

        await self._writer.run(fail)

    async def find(self, id: UUID) -> Entry | None:
        """The entry of an operation, pending or failed; None if it is not there (any more)."""
        found = await self._writer.run(lambda db, _: rows(db, SQL["find"], id.bytes))
        return _entry(found[0]) if found else None

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Entry]:
        """Entries whose operation is greater than `after`, by it, without their bodies: those that failed,
        those that are pending, or both."""
        found = await self._writer.run(lambda db, _: rows(db, SQL["page"], after.bytes, failed, limit))
        return [_entry(row) for row in found]

    async def retry(self, id: UUID) -> bool:
        """Let a failed operation wait again, at the end of its backlog; False if there is none."""

        def retry(db: apsw.Connection, now: int) -> bool:
            found = rows(db, SQL["take_failed"], id.bytes)
            write_rows(db, SQL["append"], [(*some, None, id) for _, *some, _, id in found])
            return bool(found)

        return await self._writer.run(retry)

    async def discard(self, id: UUID) -> bool:
        """Give up a failed operation for good; False if there is none."""
        return bool(await self._writer.run(lambda db, _: rows(db, SQL["take_failed"], id.bytes)))

    async def adopt(self) -> None:
        """Take in what brokers that are gone left in other files of the directory, after the entries here. What cannot
        be had now is left for the next time."""
        for path in sorted(self._path.parent.glob("journal-*.db")):
            if path == self._path:
                continue
            try:
                left = await asyncio.to_thread(Leftover.open, path)
                if left is not None:
                    await self._take_in(left, path)
            except (FairlaneError, OSError, apsw.Error) as error:
                reason = translate(error) if isinstance(error, apsw.Error) else error
                _log.error("cannot adopt the journal file %s: %s", path, reason)

    async def _take_in(self, left: Leftover, path: Path) -> None:
        count = 0
        try:
            while found := await asyncio.to_thread(left.read):
                entries = [row[1:] for row in found]
                await self._writer.run(partial(_adopt, entries=entries))
                await asyncio.to_thread(left.drop, found)
                count += len(found)
        finally:
            await asyncio.to_thread(left.close)
        if count:
            _log.info("adopted %d journal entries from %s", count, path)

    async def save(
        self,
        *,
        queues: Sequence[Queue] | None = None,
        specs: Mapping[str, Sequence[SpecDetail]] | None = None,
        keys: KnownKeys | None = None,
    ) -> None:
        """Save what is known of queues, the specs in force by tenant and the keys, for a start without the store."""
        known: list[tuple[str, object]] = [("queues", queues), ("specs", specs), ("keys", keys)]
        texts = [(key, encode(some)) for key, some in known if some is not None]
        await self._writer.run(lambda db, _: [rows(db, SQL["save"], *text) for text in texts])

    async def queues(self) -> list[Queue]:
        text = await self._writer.run(lambda db, _: value(db, SQL["saved"], "queues"))
        return msgspec.json.decode(text, type=list[Queue]) if text else []

    async def specs(self) -> dict[str, list[SpecDetail]]:
        """By tenant; a list is what a version before tenants saved."""
        text = await self._writer.run(lambda db, _: value(db, SQL["saved"], "specs"))
        found = decoder(dict[str, list[SpecDetail]] | list[SpecDetail]).decode(text) if text else {}
        return found if isinstance(found, dict) else {DEFAULT_TENANT: found}

    async def keys(self) -> KnownKeys | None:
        text = await self._writer.run(lambda db, _: value(db, SQL["saved"], "keys"))
        return msgspec.json.decode(text, type=KnownKeys) if text else None

    async def close(self) -> None:
        """Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._checkpoints is not None:
            await asyncio.to_thread(self._checkpoints.close)
        self._reader.close()
        await self._writer.close()
        if self._draining is not None:
            self._draining.release()
        self._alive.release()
        self._use.end()


def _adopt(db: apsw.Connection, now: int, *, entries: Sequence[tuple[Any, ...]]) -> None:
    write_rows(db, SQL["append"], entries)


def _counts(db: apsw.Connection, backlogs: list[Backlog]) -> dict[Backlog, int]:
    return {Backlog(*backlog): count for *backlog, count in rows(db, SQL["counts"], _json(backlogs))}


def _read(db: apsw.Connection, backlogs: Sequence[Backlog], entries_max: int, bytes_max: int) -> list[Entry]:
    each = max(1, entries_max // max(1, len(backlogs)))
    found: Counter[int] = Counter()
    sizes = []
    for backlog, seq, length in rows(db, SQL["sizes"], _json(backlogs), each):
        sizes.append((found[backlog], seq, length))
        found[backlog] += 1
    taken: list[int] = []
    size = 0
    for _, seq, length in sorted(sizes)[:entries_max]:  # each backlog's first, then each backlog's second
        size += length
        if taken and size > bytes_max:
            break
        taken.append(seq)
    return [_entry(row) for row in rows(db, SQL["read"], _json(taken))]


def _json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


def _entry(row: tuple[Any, ...]) -> Entry:
    seq, kind, tenant, name, partition, messages, body, created_at, error, id = row
    return Entry(seq, Backlog(kind, tenant, name, partition), messages, body, created_at, error, UUID(bytes=id))


def _context(backlog: Backlog, id: UUID) -> bytes:
    """Sealed for one operation of one backlog: an entry in another's stead cannot be opened."""
    return msgspec.msgpack.encode(["journal", *backlog, id.bytes])
