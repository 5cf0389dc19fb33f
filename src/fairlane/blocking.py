"""The blocking client, for programs without an event loop: the same methods, each returning when it is done.

    with Client("http://127.0.0.1:6632") as client:
        client.push("orders", {"total": 42}, partition="customer-7")

One asynchronous client does the work, on an event loop in a background thread. Its resources are wrapped on first use:
`client.queues.all()`. Any number of threads may use a client, and their concurrent calls share requests. Handlers of a
consumer run in threads as well.
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
from fairlane.client.operations import WAIT_SECONDS
from fairlane.client.options import ClientOptions
from fairlane.client.resource import ClientResource
from fairlane.errors import InvalidRequest
from fairlane.model.outcome import PushOutcome
from fairlane.wire.browse import MessageProgress, MessageResult

__all__ = ["Buffer", "Client", "Consumer", "PushHandle", "QueuedPush"]

CLEAN_UP_SECONDS = 10.0  # after an interrupt: a consumer releases its messages

_of_parents: list[object] = []
_reopening = threading.Lock()


def _forked() -> None:
    global _reopening  # another thread of the parent may have held the lock
    _reopening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")


class Portal:
    """An event loop in a background thread that other threads run coroutines on.

    A forked process inherits the portal but not its thread.
    """

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
        """Run `work` on the loop and return its result. An interrupt while waiting cancels it first."""
        ended = threading.Event()
        watched = _watched(work, ended)
        try:
            if threading.current_thread() is self._thread:
                raise InvalidRequest(
                    "a blocking client cannot wait on its own loop; use a handler that is not a coroutine"
                )
            if self.closed:
                raise InvalidRequest("this client is closed")
            if self.pid != os.getpid():
                raise InvalidRequest("this was created before this process was forked; create it again in this process")
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
        """Enter an asynchronous context manager from a thread that has no event loop."""
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


def in_portal(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a method of the asynchronous object so that it blocks until it is done."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        portal: Portal = self._portal
        answer: Any = portal.call(verb(self._asynchronous, *args, **kwargs))
        if isinstance(answer, asynchronous.PushHandle):
            answer = PushHandle.of(answer, portal)
        elif isinstance(answer, list) and any(isinstance(one, asynchronous.QueuedPush) for one in answer):
            answer = [PushHandle.of(one, portal) for one in answer]
        found: R = answer
        return found

    return wraps(verb)(call)


def _making(make: Callable[Concatenate[Any, P], X], wrap: Callable[[Portal, X], R]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a method that returns an object at once, so that the object can be used outside the loop."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self._portal, make(self._asynchronous, *args, **kwargs))

    return wraps(make)(call)


class PushHandle(PushOutcome, kw_only=True, gc=True):
    """The outcome of a push, through which the caller can wait for the result of its handler."""

    result_of: Callable[..., Any]
    state_of: Callable[[], MessageResult]

    @staticmethod
    def of(outcome: PushOutcome, portal: Portal) -> PushOutcome:
        """Return an outcome whose methods block."""
        if not isinstance(outcome, asynchronous.PushHandle):
            return outcome
        fields = msgspec.structs.asdict(outcome)
        fields["result_of"] = lambda **options: portal.call(outcome.result(**options))
        state_of: Any = outcome.state_of
        fields["state_of"] = lambda: portal.call(state_of())
        if not isinstance(outcome, asynchronous.QueuedPush):
            return PushHandle(**fields)
        wait_stored: Any = outcome.wait_stored
        fields["wait_stored"] = lambda one, seconds: portal.call(wait_stored(one, seconds))
        return QueuedPush(**fields)

    def progress(self) -> MessageProgress | None:
        """Return the progress that the handler reported last. None if the message is not being handled."""
        return self.state_of().progress

    def result(self, *, type: Any = Any, group: str | None = None, timeout: float = WAIT_SECONDS) -> Any:
        """Wait until the message is handled, and return what its handler returned."""
        return self.result_of(type=type, group=group, timeout=timeout)

    def __repr__(self) -> str:
        return f"<push {self.transaction_id}: {self.status}>"


class QueuedPush(PushHandle, kw_only=True, gc=True):
    """A push that is durable but not yet in the store. `wait` returns when it is stored."""

    wait_stored: Callable[[PushOutcome, float], PushOutcome]

    def wait(self, seconds: float = WAIT_SECONDS) -> PushOutcome:
        return self.wait_stored(self, seconds)


class BlockingResource:
    """A resource of the client whose methods block until they are done: `client.queues.all()`."""

    def __init__(self, portal: Portal, resource: ClientResource) -> None:
        self._portal = portal
        self._asynchronous = resource

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._asynchronous, name)
        return wraps(verb)(lambda *args, **kwargs: self._portal.call(verb(*args, **kwargs)))

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._asynchronous) if not name.startswith("_")]


class _Block:
    """Base of objects for `with` blocks that may block when the block ends."""

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

    push = in_portal(asynchronous.Buffer.push)
    flush = in_portal(asynchronous.Buffer.flush)

    def __len__(self) -> int:
        return len(self._asynchronous)


class Consumer(_Block):
    _asynchronous: asynchronous.Consumer

    run = in_portal(asynchronous.Consumer.run)

    def stop(self) -> None:
        self._asynchronous.stop()

    @property
    def handled(self) -> int:
        return self._asynchronous.handled

    @property
    def failed(self) -> int:
        return self._asynchronous.failed


class Client:
    """A blocking `fairlane.Client`, with the same arguments, methods and resources.

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

    push = in_portal(asynchronous.Client.push)
    push_many = in_portal(asynchronous.Client.push_many)
    buffer = _making(asynchronous.Client.buffer, Buffer)
    pop = in_portal(asynchronous.Client.pop)
    ack = in_portal(asynchronous.Client.ack)
    nack = in_portal(asynchronous.Client.nack)
    ack_many = in_portal(asynchronous.Client.ack_many)
    ack_and_pop = in_portal(asynchronous.Client.ack_and_pop)
    renew = in_portal(asynchronous.Client.renew)
    release = in_portal(asynchronous.Client.release)
    result = in_portal(asynchronous.Client.result)
    cancel = in_portal(asynchronous.Client.cancel)
    fan_in = in_portal(asynchronous.Client.fan_in)
    transaction = _making(asynchronous.Client.transaction, Portal.within)
    consume = in_portal(asynchronous.Client.consume)
    consumer = _making(asynchronous.Client.consumer, Consumer)

    def __getattr__(self, name: str) -> BlockingResource:
        """Return the resource of this name."""
        resource = None if name.startswith("_") else vars(self._asynchronous).get(name)
        if not isinstance(resource, ClientResource):
            raise AttributeError(f"a client has no {name!r}")
        return BlockingResource(self._portal, resource)

    def __dir__(self) -> list[str]:
        return [
            *super().__dir__(),
            *(name for name, one in vars(self._asynchronous).items() if isinstance(one, ClientResource)),
        ]

    def close(self) -> None:
        """Wait for calls in flight, then close the connections and stop the thread. A second call is a no-op."""
        client, portal = self._opened
        if portal.pid == os.getpid() and not portal.closed:
            portal.call(client.close())
        portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
