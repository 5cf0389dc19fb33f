"""The roles of processes that use one journal: the owner of the file, and siblings that hand over to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from fairlane.errors import FairlaneError
from fairlane.model.queue import Queue
from fairlane.model.spec_version import SpecVersion
from fairlane.runtime.lock_file import LockFile
from fairlane.store.contract.journal import Backlog, Backlogs, Entry, JournalState, NewEntry
from fairlane.store.sqlite.journal import SqliteJournal
from fairlane.store.sqlite.journal_link import REPLY, Frame, Link, listen

_decode = msgspec.msgpack.decode
_log = logging.getLogger(__name__)


class Hello(msgspec.Struct):
    """The greeting to a process that joins."""

    number: int
    backlogs: list[Backlog]
    queues: list[Queue]
    specs: list[SpecVersion]
    state: JournalState


class Owner:
    """The process that owns the file. An entry is durable, and its backlog known to all siblings, before anybody is
    answered."""

    def __init__(self, local: SqliteJournal, lock: LockFile, socket: Path) -> None:
        self._local = local
        self._lock = lock
        self._socket = socket
        self._backlogs: Backlogs
        self._server: asyncio.Server | None = None
        self._notified: dict[Link, set[Backlog]] = {}
        """The backlogs that each sibling knows."""
        self._telling: dict[Link, asyncio.Task[None]] = {}
        self._abandoned: dict[Link, set[Backlog]] = {}
        """In which each sibling has abandoned work that may yet be applied."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.number = local.number
        self.remove = local.remove
        self.fail = local.fail
        self.read = local.read
        self.failed = local.failed
        self.failed_entry = local.failed_entry
        self.find = local.find
        self.page = local.page
        self.state = local.state
        self.save_catalogue = local.save_catalogue
        self.catalogue = local.catalogue
        self.save_specs = local.save_specs
        self.specs = local.specs

    def attach(self, backlogs: Backlogs) -> None:
        self._backlogs = backlogs

    async def backlogs(self) -> dict[Backlog, int]:
        """Those in the file. From now on siblings may join, and the backlogs of what they bring are added as it
        comes."""
        found = await self._local.backlogs()
        try:
            self._server = self._server or await listen(self._socket, self._met)
        except OSError as error:
            _log.error("other processes cannot reach this journal, cannot listen on %s: %s", self._socket, error)
        return found

    async def append(self, entries: Sequence[NewEntry], *, abandoned: Iterable[Backlog]) -> None:
        if self._notified:
            await asyncio.gather(self._local.append(entries), self._announce({entry.backlog for entry in entries}))
        else:
            await self._local.append(entries)

    async def adopt(self) -> dict[Backlog, int]:
        found = await self._local.adopt()
        await self._announce(set(found))
        return found

    async def retry(self, entry: Entry) -> bool:
        again, _ = await asyncio.gather(self._local.retry(entry), self._announce({entry.backlog}))
        return again

    async def _announce(self, backlogs: set[Backlog]) -> None:
        """Until all siblings know these backlogs."""
        for link, notified in self._notified.items():
            if anew := backlogs - notified:
                notified |= anew
                self._telling[link] = asyncio.create_task(self._tell(link, list(anew)))
        if self._telling:
            # Answers come in order, so that the last one says that all before it were heard.
            await asyncio.wait(list(self._telling.values()))

    async def _tell(self, link: Link, backlogs: list[Backlog]) -> None:
        try:
            await link.call("hold", backlogs, None)
        except FairlaneError:
            link.close()  # whatever it does, it joins again before it hands over anything

    def released(self, backlogs: Sequence[Backlog]) -> None:
        for link, notified in self._notified.items():
            if gone := notified.intersection(backlogs):
                notified -= gone
                link.tell("let_go", list(gone))

    def unsettled(self) -> set[Backlog]:
        return set().union(*self._abandoned.values())

    async def tell(self, abandoned: Iterable[Backlog]) -> None:
        """Who reads the journal knows its own."""

    async def _met(self, link: Link) -> None:
        queues, specs = await self._local.catalogue(), await self._local.specs()
        backlogs = self._backlogs.names()
        self._notified[link] = set(backlogs)
        link.tell("hello", Hello(self.number, backlogs, queues, specs, self.state()))
        try:
            await link.serve(partial(self._heard, link))
        finally:
            self._notified.pop(link, None)
            self._telling.pop(link, None)
            self._abandoned.pop(link, None)

    def _heard(self, link: Link, frame: Frame) -> None:
        if frame.verb == "append":
            abandoned, entries = _decode(frame.body, type=tuple[set[Backlog], list[NewEntry]])
            self._abandoned[link] = abandoned
            self._backlogs.hold(Counter(entry.backlog for entry in entries))
            self._start(link, frame.number, self._append(entries))
        elif frame.verb == "retry":
            entry = _decode(frame.body, type=Entry)
            self._backlogs.hold({entry.backlog: 1})
            self._start(link, frame.number, self._retry(entry))
        elif frame.verb == "abandoned":
            self._abandoned[link] = _decode(frame.body, type=set[Backlog])
            link.tell(REPLY, self.state(), number=frame.number)
        elif frame.verb == "failed":
            self._start(link, frame.number, self.failed(limit=_decode(frame.body, type=int)))
        elif frame.verb == "failed_entry":
            self._start(link, frame.number, self.failed_entry(_decode(frame.body, type=int)))
        elif frame.verb == "find":
            self._start(link, frame.number, self.find(_decode(frame.body, type=UUID)))
        elif frame.verb == "page":
            after, failed, limit = _decode(frame.body, type=tuple[UUID, bool | None, int])
            self._start(link, frame.number, self.page(after, failed=failed, limit=limit))
        elif frame.verb == "remove":
            self._start(link, frame.number, self.remove(_decode(frame.body, type=list[Entry])))

    async def _append(self, entries: list[NewEntry]) -> JournalState:
        try:
            await self.append(entries, abandoned=())
        except BaseException:
            self._backlogs.let_go(entry.backlog for entry in entries)
            raise
        return self.state()

    async def _retry(self, entry: Entry) -> bool:
        again = await self.retry(entry)
        if not again:
            self._backlogs.let_go([entry.backlog])
        return again

    def _start(self, link: Link, number: int, work: Coroutine[Any, Any, Any]) -> None:
        """Tasks begin in the order in which they are made, and so do appends."""
        task = asyncio.create_task(self._answer(link, number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, link: Link, number: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            link.tell(REPLY, await work, number=number)
        except FairlaneError as error:
            link.refuse(number, error)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for link in list(self._notified):
            link.close()
        await self._local.close()
        self._lock.release()


class Sibling:
    """A process that hands over to the owner of the file, and knows the backlogs that have entries there."""

    def __init__(self, link: Link, hello: Hello) -> None:
        self._link = link
        self._hello = hello
        self._state = hello.state
        self._backlogs: Backlogs
        self.remote = set(hello.backlogs)
        """Backlogs that the owner says have entries."""
        self.number = hello.number

    @classmethod
    async def join(cls, link: Link) -> Sibling:
        """EOFError if the owner goes away meanwhile."""
        return cls(link, _decode((await link.receive()).body, type=Hello))

    def attach(self, backlogs: Backlogs) -> None:
        self._backlogs = backlogs
        backlogs.hold(dict.fromkeys(self.remote, 1))

    async def serve(self) -> None:
        await self._link.serve(self._heard)

    def _heard(self, frame: Frame) -> None:
        backlogs = set(_decode(frame.body, type=list[Backlog]))
        if frame.verb == "hold":
            self._backlogs.hold(dict.fromkeys(backlogs - self.remote, 1))
            self.remote |= backlogs
            self._link.tell(REPLY, None, number=frame.number)
        elif frame.verb == "let_go":
            self._backlogs.let_go(backlogs & self.remote)
            self.remote -= backlogs

    async def append(self, entries: Sequence[NewEntry], *, abandoned: Iterable[Backlog]) -> None:
        """The caller adds the backlogs until the owner does, of which this process was told before its answer."""
        self._state = await self._link.call("append", [list(abandoned), entries], JournalState)
        self._let_go(entry.backlog for entry in entries)

    def _let_go(self, backlogs: Iterable[Backlog]) -> None:
        self._backlogs.let_go(backlogs)

    async def retry(self, entry: Entry) -> bool:
        again: bool = await self._link.call("retry", entry, bool)
        if again:
            self._let_go([entry.backlog])
        return again

    async def remove(self, entries: Sequence[Entry]) -> None:
        await self._link.call("remove", entries, None)

    async def failed(self, *, limit: int) -> list[Entry]:
        return await self._link.call("failed", limit, list[Entry])

    async def failed_entry(self, seq: int) -> Entry | None:
        return await self._link.call("failed_entry", seq, Entry | None)

    async def find(self, id: UUID) -> Entry | None:
        return await self._link.call("find", id, Entry | None)

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Entry]:
        return await self._link.call("page", (after, failed, limit), list[Entry])

    def unsettled(self) -> set[Backlog]:
        """Whether others are at work is the owner's concern."""
        return set()

    async def tell(self, abandoned: Iterable[Backlog]) -> None:
        with contextlib.suppress(FairlaneError):
            self._state = await self._link.call("abandoned", list(abandoned), JournalState)

    def state(self) -> JournalState:
        return self._state

    async def catalogue(self) -> list[Queue]:
        return self._hello.queues

    async def backlogs(self) -> dict[Backlog, int]:
        """They are known already."""
        return {}

    def released(self, backlogs: Sequence[Backlog]) -> None: ...

    async def read(self, backlogs: Sequence[Backlog], *, entries_max: int, bytes_max: int) -> list[Entry]:
        """The owner drains."""
        return []

    async def fail(self, entry: Entry, error: str) -> None:
        raise AssertionError("the owner drains")

    async def adopt(self) -> dict[Backlog, int]:
        return {}

    async def save_catalogue(self, queues: Sequence[Queue]) -> None:
        """The owner has it."""

    async def save_specs(self, specs: Sequence[SpecVersion]) -> None:
        """The owner has them."""

    async def specs(self) -> list[SpecVersion]:
        return self._hello.specs

    async def close(self) -> None:
        self._link.close()
