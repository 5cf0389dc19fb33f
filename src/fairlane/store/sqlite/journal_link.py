"""The link between processes that use one journal: calls, their answers and notices, as frames on a socket of the file
system.

One process owns the journal. The others hand their entries over to it, and are told which backlogs have entries, so
that what comes for such a backlog follows them wherever it comes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairlane import errors
from fairlane.errors import FairlaneError, OutcomeUnknown, StoreUnavailable
from fairlane.runtime.unix_socket import open_socket, serve_socket

T = TypeVar("T")

CALL_SECONDS = 5.0
"""A process that does not answer this long is as good as gone."""
_FRAME_BYTES_MAX = 1024**3
_CODES = {kind.code: kind for kind in (errors.JournalFull, errors.StoreUnavailable, errors.StoreFull)}


class Frame(msgspec.Struct, array_like=True):
    verb: str
    number: int
    """Of a call, and of its answer; 0 if none is awaited."""
    body: msgspec.Raw = msgspec.Raw(b"\xc0")


_encode = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(Frame).decode
REPLY, ERROR = "reply", "error"


class Link:
    """One end of a connection. `heard(frame)` is called for each frame that is not an answer, in their order, and must
    not wait."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self.lost = False

    def tell(self, verb: str, body: Any = None, *, number: int = 0) -> None:
        """Send without waiting for an answer."""
        if not self.lost:
            frame = _encode(Frame(verb, number, msgspec.Raw(_encode(body))))
            self._writer.write(len(frame).to_bytes(4, "big") + frame)

    def refuse(self, number: int, error: FairlaneError) -> None:
        self.tell(ERROR, [error.code, str(error)], number=number)

    async def call(self, verb: str, body: Any, answer: type[T] | Any) -> T:
        """OutcomeUnknown if the other end goes away before it answers."""
        if self.lost:
            raise StoreUnavailable("the process that owns the journal went away")
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        self.tell(verb, body, number=number)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return msgspec.msgpack.decode(await future, type=answer)
        except TimeoutError:
            raise OutcomeUnknown("the process that owns the journal does not answer") from None
        finally:
            self._calls.pop(number, None)

    async def receive(self) -> Frame:
        """The next frame; EOFError if there is none. For what comes before `serve`."""
        async for frame in self._frames():
            return frame
        raise EOFError

    async def serve(self, heard: Callable[[Frame], None]) -> None:
        """Until the other end is gone."""
        try:
            async for frame in self._frames():
                if frame.verb in (REPLY, ERROR):
                    self._answered(frame)
                else:
                    heard(frame)
        finally:
            self.close()
            for future in self._calls.values():
                if not future.done():
                    future.set_exception(OutcomeUnknown("the process that owns the journal went away"))

    async def _frames(self) -> AsyncIterator[Frame]:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                if size > _FRAME_BYTES_MAX:
                    return
                yield _decode_frame(await self._reader.readexactly(size))

    def _answered(self, frame: Frame) -> None:
        future = self._calls.get(frame.number)
        if future is None or future.done():
            return
        if frame.verb == REPLY:
            future.set_result(frame.body)
        else:
            code, message = msgspec.msgpack.decode(frame.body, type=tuple[str, str])
            future.set_exception(_CODES.get(code, StoreUnavailable)(message))

    def close(self) -> None:
        self.lost = True
        self._writer.close()


async def connect(path: Path) -> Link:
    return Link(*await open_socket(path))


async def listen(path: Path, met: Callable[[Link], Awaitable[None]]) -> asyncio.Server:
    """The caller holds the lock that makes it the only one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await met(Link(reader, writer))

    return await serve_socket(path, serve)
