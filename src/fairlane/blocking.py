"""The blocking client, for programs without an event loop: the same verbs, each returning when it is done.

    with Client("http://127.0.0.1:6632") as client:
        client.push("orders", {"total": 42}, partition="customer-7")

One asynchronous client does the work, on a loop in a thread of its own. Its parts are wrapped as they are asked for:
`client.queues.list()`. Calls may come from any number of threads, and travel together as those of its tasks do.
Handlers of a consumer run in threads as well.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import msgspec

from fairlane import client as asynchronous
from fairlane.client.client import ClientOptions
from fairlane.client.operations import WAIT_SECONDS
from fairlane.client.part import Part
from fairlane.errors import InvalidRequest
from fairlane.model.outcome import PushOutcome

__all__ = ["Buffer", "Client", "Consumer", "QueuedPush"]

CLEAN_UP_SECONDS = 10.0  # for what was interrupted: a consumer gives back what it held

_of_parents: list[object] = []
_reopening = threading.Lock()


def _forked() -> None:
    global _reopening  # somebody else may have held it
    _reopening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")


class Portal:
    """An event loop in a thread, and the way to it. A forked process has the portal, but not its thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.closed = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fairlane-client", daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self._ready.set()
        await self._closing.wait()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """What `work` returns, or raises, on the loop. Who is interrupted while waiting for it ends it first."""
        ended = threading.Event()
        watched = _watched(work, ended)
        try:
            if threading.current_thread() is self._thread:
                raise InvalidRequest(
                    "a blocking client cannot wait on its own loop; use a handler that is no coroutine"
                )
            if self.closed:
                raise InvalidRequest("this client is closed")
            if self.pid != os.getpid():
                raise InvalidRequest("this was made before this process was forked; make it again in this process")
            future = asyncio.run_coroutine_threadsafe(watched, self._loop)
        except BaseException:
            watched.close()
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise InvalidRequest("this client was closed meanwhile") from None
        except (KeyboardInterrupt, SystemExit):
            future.cancel()
            ended.wait(CLEAN_UP_SECONDS)
            raise

    @contextmanager
    def within(self, manager: AbstractAsyncContextManager[R]) -> Iterator[R]:
        """`async with manager`, for a caller that cannot."""
        entered = self.call(_awaited(manager.__aenter__))
        try:
            yield entered
        except BaseException as error:
            if not self.call(_awaited(manager.__aexit__, type(error), error, error.__traceback__)):
                raise
        else:
            self.call(_awaited(manager.__aexit__, None, None, None))

    def close(self) -> None:
        closed, self.closed = self.closed, True
        if not closed and self.pid == os.getpid():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()


async def _watched(work: Coroutine[Any, Any, R], ended: threading.Event) -> R:
    try:
        return await work
    finally:
        ended.set()


async def _awaited(verb: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    return await verb(*args, **kwargs)


def _blocking(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """A verb of the asynchronous object behind a blocking one, for a caller that waits."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        portal: Portal = self._portal
        answer: Any = portal.call(verb(self._asynchronous, *args, **kwargs))
        if isinstance(answer, asynchronous.QueuedPush):
            answer = QueuedPush.of(answer, portal)
        elif isinstance(answer, list) and any(isinstance(one, asynchronous.QueuedPush) for one in answer):
            answer = [QueuedPush.of(one, portal) for one in answer]
        found: R = answer
        return found

    return wraps(verb)(call)


def _making(make: Callable[Concatenate[Any, P], X], wrap: Callable[[Portal, X], R]) -> Callable[Concatenate[Any, P], R]:
    """A verb that returns an object at once, for a caller that uses it from outside the loop."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self._portal, make(self._asynchronous, *args, **kwargs))

    return wraps(make)(call)


class QueuedPush(PushOutcome, kw_only=True, gc=True):
    """A push that is durable and stored soon. `wait` returns when it is."""

    look: Callable[[PushOutcome, float], PushOutcome]

    @staticmethod
    def of(outcome: PushOutcome, portal: Portal) -> PushOutcome:
        if not isinstance(outcome, asynchronous.QueuedPush):
            return outcome
        look: Any = outcome.look
        fields = msgspec.structs.asdict(outcome) | {"look": lambda one, seconds: portal.call(look(one, seconds))}
        return QueuedPush(**fields)

    def wait(self, seconds: float = WAIT_SECONDS) -> PushOutcome:
        return self.look(self, seconds)


class Verbs:
    """The verbs of a part of the client, each returning when it is done: `client.queues.list()`."""

    def __init__(self, portal: Portal, part: Part) -> None:
        self._portal = portal
        self._asynchronous = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._asynchronous, name)
        return wraps(verb)(lambda *args, **kwargs: self._portal.call(verb(*args, **kwargs)))

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._asynchronous) if not name.startswith("_")]


class _Block:
    """Something for a `with` block, whose end may wait."""

    def __init__(self, portal: Portal, inner: AbstractAsyncContextManager[Any]) -> None:
        self._portal = portal
        self._asynchronous = inner
        self._block = portal.within(inner)

    def __enter__(self) -> Self:
        self._block.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._block.__exit__(*raised)


class Buffer(_Block):
    _asynchronous: asynchronous.Buffer

    push = _blocking(asynchronous.Buffer.push)
    flush = _blocking(asynchronous.Buffer.flush)

    def __len__(self) -> int:
        return len(self._asynchronous)


class Consumer(_Block):
    _asynchronous: asynchronous.Consumer

    run = _blocking(asynchronous.Consumer.run)

    def stop(self) -> None:
        self._asynchronous.stop()

    @property
    def handled(self) -> int:
        return self._asynchronous.handled

    @property
    def failed(self) -> int:
        return self._asynchronous.failed


class Client:
    """`fairlane.Client`, for callers that wait. Takes the same arguments, and has the same verbs and parts.

    After a fork, the child process opens its own connections on its first call.
    """

    def __init__(
        self, servers: str | Sequence[str] = asynchronous.DEFAULT_SERVER, **options: Unpack[ClientOptions]
    ) -> None:
        self._make = partial(asynchronous.Client, servers, **options)
        self._opened = self._make(), Portal()

    def _here(self) -> tuple[asynchronous.Client, Portal]:
        """Return the asynchronous client of this process, and the portal to its loop."""
        if self._opened[1].pid != os.getpid() and not self._opened[1].closed:
            with _reopening:
                if self._opened[1].pid != os.getpid():
                    # Connections and loop are the parent's: they are neither used nor closed here.
                    _of_parents.append(self._opened)
                    self._opened = self._make(), Portal()
        return self._opened

    @property
    def _asynchronous(self) -> asynchronous.Client:
        return self._here()[0]

    @property
    def _portal(self) -> Portal:
        return self._here()[1]

    push = _blocking(asynchronous.Client.push)
    push_many = _blocking(asynchronous.Client.push_many)
    buffer = _making(asynchronous.Client.buffer, Buffer)
    pop = _blocking(asynchronous.Client.pop)
    ack = _blocking(asynchronous.Client.ack)
    nack = _blocking(asynchronous.Client.nack)
    ack_many = _blocking(asynchronous.Client.ack_many)
    renew = _blocking(asynchronous.Client.renew)
    release = _blocking(asynchronous.Client.release)
    result = _blocking(asynchronous.Client.result)
    transaction = _making(asynchronous.Client.transaction, Portal.within)
    pause_pops = _blocking(asynchronous.Client.pause_pops)
    pause_pushes = _blocking(asynchronous.Client.pause_pushes)
    consume = _blocking(asynchronous.Client.consume)
    consumer = _making(asynchronous.Client.consumer, Consumer)

    def __getattr__(self, name: str) -> Verbs:
        """A part of the client, by its name."""
        part = None if name.startswith("_") else vars(self._asynchronous).get(name)
        if not isinstance(part, Part):
            raise AttributeError(f"a client has no {name!r}")
        return Verbs(self._portal, part)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name, one in vars(self._asynchronous).items() if isinstance(one, Part))]

    def close(self) -> None:
        """Wait for what is on its way, then close the connections and end the thread. Twice is as good as once."""
        client, portal = self._opened
        if portal.pid == os.getpid() and not portal.closed:
            portal.call(client.close())
        portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
