"""The journal of a directory, for every process that uses it: one owns the file, the others hand theirs over.

What is accepted anywhere is durable in the one file, in one order, and its backlog known to every process before the
caller is answered. When the owner goes away, whoever finds out first takes its place, and goes on where it was."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import msgspec

from fairlane.errors import SealError, ShuttingDown, StoreUnavailable
from fairlane.model.queue import Queue
from fairlane.model.spec_version import SpecVersion
from fairlane.runtime.lock_file import LockFile
from fairlane.store.contract.journal import Backlog, Backlogs, Entry, JournalState, NewEntry
from fairlane.store.keyring import Keyring
from fairlane.store.sqlite.journal import SqliteJournal
from fairlane.store.sqlite.journal_link import connect
from fairlane.store.sqlite.journal_roles import Owner, Sibling

JOIN_SECONDS = 10.0
"""For the start of an owner that was seen to be there."""
REJOIN_SECONDS = 2.0
"""For which a caller waits while the owner is being replaced."""
_PAUSE_SECONDS = 0.02
_SEALED = b"\xc1sealed"
"""What begins so is no MessagePack, as bodies in clear are."""

_log = logging.getLogger(__name__)


class DirectoryJournal:
    def __init__(self, directory: Path, bytes_max: int, store: str, keyring: Keyring | None) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._keyring = keyring
        # Brokers of different stores may lie in one directory; what is for one store must not go to another.
        self._name = f"owner-{sha256(store.encode()).hexdigest()[:12]}"
        self._role: Owner | Sibling
        self._backlogs: Backlogs | None = None
        self._abandoned: Callable[[], set[Backlog]] = set
        self._joined = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    async def open(
        cls, directory: str, *, bytes_max: int, store: str, keyring: Keyring | None = None
    ) -> DirectoryJournal:
        """For what is to go to `store`; sealed with a `keyring`, so that which queues are encrypted need not be known.
        StoreUnavailable if neither a file nor its owner can be had, StoreUnsafe if it would not be durable."""
        journal = cls(Path(directory), bytes_max, store, keyring)
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                journal._role = await journal._join()
        except TimeoutError:
            raise StoreUnavailable(f"the process that owns the journal in {directory} does not answer") from None
        journal._joined.set()
        return journal

    async def _join(self) -> Owner | Sibling:
        while True:
            try:
                lock = await asyncio.to_thread(self._lock)
            except BlockingIOError:
                with contextlib.suppress(OSError, EOFError):
                    return await Sibling.join(await connect(self._socket))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                local = await SqliteJournal.open(str(self._directory), bytes_max=self._bytes_max)
            except BaseException:
                lock.release()
                raise
            return Owner(local, lock, self._socket)

    def _lock(self) -> LockFile:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return LockFile(str(self._directory / f"{self._name}.lock"))
        except BlockingIOError:
            raise
        except OSError as error:
            raise StoreUnavailable(f"the journal's directory {self._directory} cannot be used: {error}") from None

    @property
    def _socket(self) -> Path:
        return self._directory / f"{self._name}.sock"

    def attach(self, backlogs: Backlogs, abandoned: Callable[[], set[Backlog]]) -> None:
        self._backlogs, self._abandoned = backlogs, abandoned
        self._role.attach(backlogs)
        if isinstance(self._role, Sibling):
            self._following = asyncio.create_task(self._follow(self._role, backlogs), name="fairlane journal")

    async def _follow(self, sibling: Sibling, backlogs: Backlogs) -> None:
        """Until this process owns the journal. The backlogs of an owner that is gone stay until they are known anew:
        their entries are in the file."""
        while True:
            await sibling.serve()
            self._joined.clear()
            _log.warning("the process that owned the journal exited; another takes over")
            role = await self._rejoin()
            role.attach(backlogs)
            if isinstance(role, Owner):
                backlogs.hold(await role.backlogs())
            backlogs.let_go(sibling.remote)
            self._role = role
            self._joined.set()
            if isinstance(role, Owner):
                return
            sibling = role

    async def _rejoin(self) -> Owner | Sibling:
        while True:
            try:
                return await self._join()
            except (StoreUnavailable, OSError) as error:
                _log.error("journal unavailable: %s", error)
                await asyncio.sleep(1.0)

    async def _joined_role(self) -> Owner | Sibling:
        if self._closing:
            raise ShuttingDown("the journal is closed")
        if not self._joined.is_set():
            try:
                async with asyncio.timeout(REJOIN_SECONDS):
                    await self._joined.wait()
            except TimeoutError:
                raise StoreUnavailable("the process that owns the journal went away; try again soon") from None
        return self._role

    @property
    def owned(self) -> bool:
        return isinstance(self._role, Owner)

    @property
    def sealed(self) -> bool:
        return self._keyring is not None

    def _seal(self, entry: NewEntry) -> NewEntry:
        if self._keyring is None:
            return entry
        return entry._replace(body=_SEALED + self._keyring.seal_locally(entry.body, _context(entry.backlog)))

    def opened(self, entry: Entry) -> bytes:
        if not entry.body.startswith(_SEALED):
            return entry.body
        if self._keyring is None:
            raise SealError("a journal entry is sealed, and this broker has no key: set the one that sealed it")
        return self._keyring.open_locally(entry.body.removeprefix(_SEALED), _context(entry.backlog))

    @property
    def number(self) -> int:
        return self._role.number

    async def append(self, entries: Sequence[NewEntry]) -> None:
        sealed = [self._seal(entry) for entry in entries]
        await (await self._joined_role()).append(sealed, abandoned=self._abandoned())

    async def read(self, backlogs: Sequence[Backlog], *, entries_max: int, bytes_max: int) -> list[Entry]:
        return await self._role.read(backlogs, entries_max=entries_max, bytes_max=bytes_max)

    async def remove(self, entries: Sequence[Entry]) -> None:
        await (await self._joined_role()).remove(entries)

    async def fail(self, entry: Entry, error: str) -> None:
        await self._role.fail(entry, error)

    async def failed(self, *, limit: int) -> list[Entry]:
        return await (await self._joined_role()).failed(limit=limit)

    async def failed_entry(self, seq: int) -> Entry | None:
        return await (await self._joined_role()).failed_entry(seq)

    async def find(self, id: UUID) -> Entry | None:
        return await (await self._joined_role()).find(id)

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Entry]:
        return await (await self._joined_role()).page(after, failed=failed, limit=limit)

    async def retry(self, entry: Entry) -> bool:
        return await (await self._joined_role()).retry(entry)

    def room(self) -> int:
        state = self._role.state()
        return state.bytes_max - state.bytes

    async def adopt(self) -> dict[Backlog, int]:
        return await self._role.adopt()

    async def backlogs(self) -> dict[Backlog, int]:
        return await self._role.backlogs()

    def released(self, backlogs: Sequence[Backlog]) -> None:
        self._role.released(backlogs)

    def unsettled(self) -> set[Backlog]:
        return self._role.unsettled()

    async def tell(self) -> None:
        await self._role.tell(self._abandoned())

    def state(self) -> JournalState:
        return self._role.state()

    async def save_catalogue(self, queues: Sequence[Queue]) -> None:
        await self._role.save_catalogue(queues)

    async def catalogue(self) -> list[Queue]:
        return await self._role.catalogue()

    async def save_specs(self, specs: Sequence[SpecVersion]) -> None:
        await self._role.save_specs(specs)

    async def specs(self) -> list[SpecVersion]:
        return await self._role.specs()

    async def close(self) -> None:
        """Idempotent."""
        if self._closing:
            return
        self._closing = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await self._role.close()


def _context(backlog: Backlog) -> bytes:
    """Sealed for one backlog: an entry that was moved to another cannot be opened."""
    return msgspec.msgpack.encode(["journal", *backlog])
