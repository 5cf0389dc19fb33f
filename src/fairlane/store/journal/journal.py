"""The journal of a broker on its own SQLite file, with one fsync for all pending writes.

Each process appends to the file itself. So an accepted entry is durable, ordered, and visible to all processes before
its caller gets the answer. One process drains the file. When it ends, another takes over.
"""

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
from fairlane.store.sqlite.connection import CHECKPOINT_PAGES, is_safe, open_reader
from fairlane.store.sqlite.error_mapping import translate
from fairlane.store.sqlite.rows import first, rows, value, write_rows
from fairlane.store.sqlite.wal_checkpoints import Checkpointer
from fairlane.store.sqlite.writer import Writer
from fairlane.wire.base import decoder, encode
from fairlane.wire.specs import SpecDetail

RETRY_SECONDS: Final = 5.0
_LOG_PAGES_MAX: Final = 100_000  # 400 MB
_SEALED: Final = b"\xc1sealed"
"""Prefix of sealed bodies. It is not valid MessagePack, which plain bodies are."""
_log = logging.getLogger(__name__)


class Journal:
    """The journal of a broker in one of its processes.

    Methods that are not async answer at once, for all processes: an acknowledged entry is always visible.
    """

    def __init__(
        self, db: apsw.Connection, use: Use, member: tuple[int, LockFile], bytes_max: int, keyring: Keyring | None
    ) -> None:
        self._path = use.path
        self._use = use
        self._number, self._alive = member
        self._reader = open_reader(str(use.path))
        self.version: Callable[[], int] = partial(self._reader.pragma, "data_version")
        """Function that returns a number which changes with every write of any process."""
        self._checkpoints: Checkpointer | None = None
        if is_safe():
            self._checkpoints = Checkpointer(db, pages=CHECKPOINT_PAGES, pages_max=_LOG_PAGES_MAX)
        self._writer = Writer(db, steady_clock())
        self._seal = keyring.local() if keyring is not None else None
        self.sealed = keyring is not None
        """True if its entries are encrypted in the file."""
        self._draining: LockFile | None = None
        self._unsettled: Collection[Backlog] | None = set()
        """Backlogs that were last published as abandoned. None if that is not known."""
        self._bytes_max = bytes_max
        self._closed = False

    @classmethod
    async def open(cls, directory: str, *, bytes_max: int, store: str, keyring: Keyring | None = None) -> Journal:
        """Open the journal for `store`. With a `keyring` all entries are sealed, whatever their queue.

        Raises StoreUnavailable if no file can be used, StoreUnsafe if it would not be durable.
        """
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
        # The previous owner of the number has ended.
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

    def free_bytes(self) -> int:
        """Return the bytes that `append` can still take."""
        return self._bytes_max - int(value(self._reader, SQL["bytes"]))

    def holds(self, backlogs: Iterable[Backlog]) -> set[Backlog]:
        """Return the backlogs with pending entries."""
        return set(_counts(self._reader, list(backlogs)))

    def count(self, backlog: Backlog) -> int:
        """Return how many pending entries a backlog has."""
        return _counts(self._reader, [backlog]).get(backlog, 0)

    def drains(self) -> bool:
        """Return True if this process drains the journal. It takes over if no other process does."""
        if self._draining is None:
            try:
                self._draining = LockFile(f"{self._path}.drain.lock")
            except OSError:
                return False
        return True

    def unsettled(self) -> set[Backlog]:
        """Return the backlogs in which other processes have work in progress that may still be applied.

        It starts before an entry is read, and lasts until the process reports its end or dies.
        """
        found: dict[int, set[Backlog]] = {}
        for member, *backlog in rows(self._reader, SQL["abandoned"], self._number):
            found.setdefault(member, set()).add(Backlog(*backlog))
        return set().union(*[backlogs for member, backlogs in found.items() if self._is_alive(member)])

    def _is_alive(self, member: int) -> bool:
        try:
            member_lock(self._path.parent, member).release()
        except BlockingIOError:
            return True
        return False

    def open_body(self, entry: Entry) -> bytes:
        """Return the body of an entry in clear. Raises SealError if this broker lacks the key that sealed it."""
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
        """Append all entries or none. They are durable when it returns, and in the order of the calls.

        Returns the number of entries in each of their backlogs. For `abandoned` see `publish_abandoned`. Raises
        JournalFull if they do not fit on the disk or below the limit, StoreUnavailable if the file cannot be written.
        """
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
            self._write_abandoned(db, abandoned)
        return _counts(db, list({Backlog(*some[:4]) for some in values}))

    def _write_abandoned(self, db: apsw.Connection, abandoned: Collection[Backlog]) -> None:
        rows(db, SQL["settle"], self._number)
        write_rows(db, SQL["abandon"], [(self._number, *backlog) for backlog in abandoned])

    async def publish_abandoned(self, abandoned: Collection[Backlog]) -> None:
        """Publish the backlogs in which this process abandoned work that may yet be applied."""
        if abandoned == self._unsettled:
            return
        self._unsettled = abandoned
        try:
            await self._writer.run(lambda db, _: self._write_abandoned(db, abandoned))
        except BaseException:
            self._unsettled = None
            raise

    async def backlogs(self) -> dict[Backlog, int]:
        """Return the number of pending entries of each backlog."""
        found = await self._writer.run(lambda db, _: rows(db, SQL["backlogs"]))
        return {Backlog(*backlog): count for *backlog, count in found}

    async def read(self, backlogs: Sequence[Backlog], *, entries_max: int, bytes_max: int) -> list[Entry]:
        """Return the next entries of these backlogs, in the order of acceptance, at least one if there is any.

        Each backlog contributes one entry before any contributes two.
        """
        return await self._writer.run(lambda db, _: _read(db, backlogs, entries_max, bytes_max))

    async def remove(self, entries: Sequence[Entry]) -> None:
        """Remove entries that were applied or discarded."""
        await self._writer.run(lambda db, _: rows(db, SQL["remove"], _json([entry.seq for entry in entries])))

    async def fail(self, entry: Entry, error: str) -> None:
        """Mark an entry as failed, with the reason."""

        def fail(db: apsw.Connection, now: int) -> None:
            for *some, _, id in rows(db, SQL["take"], entry.seq):
                rows(db, SQL["put_back"], *some, error, id)

        await self._writer.run(fail)

    async def find(self, id: UUID) -> Entry | None:
        """Return the pending or failed entry of an operation, or None."""
        found = await self._writer.run(lambda db, _: rows(db, SQL["find"], id.bytes))
        return _entry(found[0]) if found else None

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Entry]:
        """Return entries with an operation id above `after`, in order, without their bodies.

        Returns failed entries, pending entries, or both.
        """
        found = await self._writer.run(lambda db, _: rows(db, SQL["page"], after.bytes, failed, limit))
        return [_entry(row) for row in found]

    async def retry(self, id: UUID) -> bool:
        """Retry a failed operation, at the end of its backlog. Returns False if it does not exist."""

        def retry(db: apsw.Connection, now: int) -> bool:
            found = rows(db, SQL["take_failed"], id.bytes)
            write_rows(db, SQL["append"], [(*some, None, id) for _, *some, _, id in found])
            return bool(found)

        return await self._writer.run(retry)

    async def discard(self, id: UUID) -> bool:
        """Discard a failed operation for good. Returns False if it does not exist."""
        return bool(await self._writer.run(lambda db, _: rows(db, SQL["take_failed"], id.bytes)))

    async def adopt(self) -> None:
        """Take over the entries that ended brokers left in other files of the directory, after the entries here.

        Files that cannot be opened are left for the next time.
        """
        for path in sorted(self._path.parent.glob("journal-*.db")):
            if path == self._path:
                continue
            try:
                left = await asyncio.to_thread(Leftover.open, path)
                if left is not None:
                    await self._import_leftover(left, path)
            except (FairlaneError, OSError, apsw.Error) as error:
                reason = translate(error) if isinstance(error, apsw.Error) else error
                _log.error("cannot adopt the journal file %s: %s", path, reason)

    async def _import_leftover(self, left: Leftover, path: Path) -> None:
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
        """Save queues, specs in force by tenant, and keys, for a start without the store."""
        known: list[tuple[str, object]] = [("queues", queues), ("specs", specs), ("keys", keys)]
        texts = [(key, encode(some)) for key, some in known if some is not None]
        await self._writer.run(lambda db, _: [rows(db, SQL["save"], *text) for text in texts])

    async def queues(self) -> list[Queue]:
        text = await self._writer.run(lambda db, _: value(db, SQL["saved"], "queues"))
        return msgspec.json.decode(text, type=list[Queue]) if text else []

    async def specs(self) -> dict[str, list[SpecDetail]]:
        """Return the saved specs by tenant. Versions without tenants saved a list."""
        text = await self._writer.run(lambda db, _: value(db, SQL["saved"], "specs"))
        found = decoder(dict[str, list[SpecDetail]] | list[SpecDetail]).decode(text) if text else {}
        return found if isinstance(found, dict) else {DEFAULT_TENANT: found}

    async def keys(self) -> KnownKeys | None:
        text = await self._writer.run(lambda db, _: value(db, SQL["saved"], "keys"))
        return msgspec.json.decode(text, type=KnownKeys) if text else None

    async def close(self) -> None:
        """Close the journal. Idempotent."""
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
    for _, seq, length in sorted(sizes)[:entries_max]:  # the first entry of each backlog, then the second of each
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
    """Return the context of an entry, so that it cannot be opened in place of another."""
    return msgspec.msgpack.encode(["journal", *backlog, id.bytes])
