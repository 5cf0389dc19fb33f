"""The blocking client, for programs without an event loop: the same verbs, each returning when it is done.

    with Client("http://127.0.0.1:6632") as client:
        client.push("orders", {"total": 42}, partition="customer-7")

One asynchronous client does the work, on a loop in a thread of its own. Calls may come from any number of threads,
and travel together as those of its tasks do. Handlers of a consumer run in threads as well.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import msgspec

from fairlane import client as asynchronous
from fairlane.client.client import ClientOptions
from fairlane.client.operations import WAIT_SECONDS
from fairlane.errors import InvalidRequest
from fairlane.model.outcome import PushOutcome

__all__ = ["Buffer", "Client", "Consumer", "QueuedPush"]

CLEAN_UP_SECONDS = 10.0  # for what was interrupted: a consumer gives back what it held

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")


class Portal:
    """An event loop in a thread, and the way to it."""

    def __init__(self) -> None:
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
            if not self.open:
                raise InvalidRequest("this client is closed")
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

    @property
    def open(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        if self.open:
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
        return portal.call(verb(self._asynchronous, *args, **kwargs))

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    return call


def _making(make: Callable[Concatenate[Any, P], X], wrap: Callable[[Portal, X], R]) -> Callable[Concatenate[Any, P], R]:
    """A verb that returns an object at once, for a caller that uses it from outside the loop."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return wrap(self._portal, make(self._asynchronous, *args, **kwargs))

    call.__name__, call.__doc__ = make.__name__, make.__doc__
    return call


class QueuedPush(PushOutcome, kw_only=True, gc=True):
    """A push that is durable and stored soon. `wait` returns when it is."""

    look: Callable[[PushOutcome, float], PushOutcome]

    def wait(self, seconds: float = WAIT_SECONDS) -> PushOutcome:
        return self.look(self, seconds)


class _Inner(asynchronous.Client):
    """The asynchronous client, whose handles are for callers that wait."""

    portal: Portal

    def _handle(self, outcome: PushOutcome) -> PushOutcome:
        def look(outcome: PushOutcome, seconds: float) -> PushOutcome:
            return self.portal.call(self._look(outcome, seconds))

        if outcome.status != "buffered":
            return outcome
        return QueuedPush(**msgspec.structs.asdict(outcome), look=look)


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
    """`fairlane.Client`, for callers that wait. Takes the same arguments."""

    def __init__(
        self, servers: str | Sequence[str] = asynchronous.DEFAULT_SERVER, **options: Unpack[ClientOptions]
    ) -> None:
        self._asynchronous = _Inner(servers, **options)
        self._asynchronous.portal = self._portal = Portal()

    push = _blocking(asynchronous.Client.push)
    push_many = _blocking(asynchronous.Client.push_many)
    operation = _blocking(asynchronous.Client.operation)
    operations = _blocking(asynchronous.Client.operations)
    retry_operation = _blocking(asynchronous.Client.retry_operation)
    discard_operation = _blocking(asynchronous.Client.discard_operation)
    retry_operations = _blocking(asynchronous.Client.retry_operations)
    discard_operations = _blocking(asynchronous.Client.discard_operations)
    buffer = _making(asynchronous.Client.buffer, Buffer)
    pop = _blocking(asynchronous.Client.pop)
    ack = _blocking(asynchronous.Client.ack)
    nack = _blocking(asynchronous.Client.nack)
    ack_many = _blocking(asynchronous.Client.ack_many)
    renew = _blocking(asynchronous.Client.renew)
    release = _blocking(asynchronous.Client.release)
    transaction = _making(asynchronous.Client.transaction, Portal.within)
    consume = _blocking(asynchronous.Client.consume)
    consumer = _making(asynchronous.Client.consumer, Consumer)
    configure = _blocking(asynchronous.Client.configure)
    queues = _blocking(asynchronous.Client.queues)
    queue = _blocking(asynchronous.Client.queue)
    set_options = _blocking(asynchronous.Client.set_options)
    clear = _blocking(asynchronous.Client.clear)
    delete_queue = _blocking(asynchronous.Client.delete_queue)
    leases = _blocking(asynchronous.Client.leases)
    utilisation = _blocking(asynchronous.Client.utilisation)
    messages = _blocking(asynchronous.Client.messages)
    message = _blocking(asynchronous.Client.message)
    message_result = _blocking(asynchronous.Client.message_result)
    result = _blocking(asynchronous.Client.result)
    groups = _blocking(asynchronous.Client.groups)
    seek = _blocking(asynchronous.Client.seek)
    delete_group = _blocking(asynchronous.Client.delete_group)
    scheduled = _blocking(asynchronous.Client.scheduled)
    cancel = _blocking(asynchronous.Client.cancel)
    reschedule = _blocking(asynchronous.Client.reschedule)
    define_schedule = _blocking(asynchronous.Client.define_schedule)
    schedules = _blocking(asynchronous.Client.schedules)
    schedule = _blocking(asynchronous.Client.schedule)
    delete_schedule = _blocking(asynchronous.Client.delete_schedule)
    pause_schedule = _blocking(asynchronous.Client.pause_schedule)
    resume_schedule = _blocking(asynchronous.Client.resume_schedule)
    run_schedule = _blocking(asynchronous.Client.run_schedule)
    plan_spec = _blocking(asynchronous.Client.plan_spec)
    apply_spec = _blocking(asynchronous.Client.apply_spec)
    specs = _blocking(asynchronous.Client.specs)
    spec_versions = _blocking(asynchronous.Client.spec_versions)
    export_spec = _blocking(asynchronous.Client.export_spec)
    workers = _blocking(asynchronous.Client.workers)
    report = _blocking(asynchronous.Client.report)
    leave = _blocking(asynchronous.Client.leave)
    effect = _blocking(asynchronous.Client.effect)
    keep_effect = _blocking(asynchronous.Client.keep_effect)
    sources = _blocking(asynchronous.Client.sources)
    source = _blocking(asynchronous.Client.source)
    delete_source = _blocking(asynchronous.Client.delete_source)
    lease_source = _blocking(asynchronous.Client.lease_source)
    release_source = _blocking(asynchronous.Client.release_source)
    commit_source = _blocking(asynchronous.Client.commit_source)
    pause = _blocking(asynchronous.Client.pause)
    resume = _blocking(asynchronous.Client.resume)
    resume_lanes = _blocking(asynchronous.Client.resume_lanes)
    pauses = _blocking(asynchronous.Client.pauses)
    explain = _blocking(asynchronous.Client.explain)
    dead_letters = _blocking(asynchronous.Client.dead_letters)
    replay = _blocking(asynchronous.Client.replay)
    purge = _blocking(asynchronous.Client.purge)
    run_retention = _blocking(asynchronous.Client.run_retention)
    retention_history = _blocking(asynchronous.Client.retention_history)

    def close(self) -> None:
        """Wait for what is on its way, then close the connections and end the thread. Twice is as good as once."""
        if self._portal.open:
            self._portal.call(self._asynchronous.close())
            self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
