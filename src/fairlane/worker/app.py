"""The app: what its functions handle, and what they are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX
from fairlane.model.names import QUEUE_MODE, check_count, check_name
from fairlane.runtime.durations import seconds_in
from fairlane.wire.schedules import Missed
from fairlane.worker.context import Context

CONCURRENCY = 10

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["message", "batch", "command"]
Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, Next], Awaitable[Any]]


class HandlerOptions(TypedDict, total=False):
    """Options of a handler; `Handler` says what they are by default."""

    concurrency: int | None
    """Calls, or batches, that a worker runs at once."""
    lease_seconds: int | None
    processes: bool
    """Run the function in processes of its own."""


class GroupOptions(HandlerOptions, total=False):
    group: str


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A function and what it was registered for."""

    function: Callable[..., Any]
    queue: str
    group: str = QUEUE_MODE
    kind: Kind
    type: str | None = None
    size: int = 1
    """Messages of one call."""
    concurrency: int | None = None
    lease_seconds: int | None = None
    """None: as long as the queue says."""
    processes: bool = False

    def check(self) -> Handler:
        check_name("queue", self.queue)
        check_name("group", self.group)
        check_count("size", self.size, least=1, most=BATCH_ITEMS_MAX)
        if self.lease_seconds is not None:
            check_count("lease_seconds", self.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        if self.concurrency is not None:
            check_count("concurrency", self.concurrency, least=1, most=BATCH_ITEMS_MAX)
        if not callable(self.function):
            raise InvalidRequest(f"a handler is a function, not {type(self.function).__name__}")
        return self

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__qualname__", self.function))


class Every(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that an app declares. It has the name of the queue that it pushes to."""

    name: str
    seconds: int | None
    cron: str | None
    timezone: str
    missed: Missed


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers of one queue and group: one for whole batches, or one for each type of message and, with the type
    None, one for all others."""

    queue: str
    group: str
    handlers: dict[str | None, Handler]
    mapping: Callable[[bytes], bytes] | None = None
    """Makes a message the input of a command; without it the message is the input."""

    @property
    def size(self) -> int:
        return max(handler.size for handler in self.handlers.values())

    @property
    def batched(self) -> bool:
        return any(handler.kind == "batch" for handler in self.handlers.values())

    @property
    def lease_seconds(self) -> int | None:
        """The longest that a handler names; None if none does, so that the queue's setting holds."""
        return max((one.lease_seconds for one in self.handlers.values() if one.lease_seconds), default=None)

    def concurrency(self, otherwise: int | None = None) -> int:
        """What the handlers ask for, or else `otherwise`."""
        asked = [handler.concurrency for handler in self.handlers.values() if handler.concurrency]
        return max(asked) if asked else otherwise or (1 if self.batched else CONCURRENCY)


class App:
    """Registers handlers; `fairlane worker module:app` runs them.

        app = App()

        @app.handler("orders", group="billing", concurrency=8)
        async def bill(order: Order, ctx: Context) -> None: ...

    A handler's first parameter is the payload, decoded as its annotation says. A parameter annotated `Context` is
    the context, and one annotated with what a provider returns is that. Coroutine functions run on an event loop,
    others in threads, and with `processes=True` in processes.
    """

    def __init__(self, name: str = "app") -> None:
        self.name = check_name("name", name)
        self.handlers: list[Handler] = []
        self.middlewares: list[Middleware] = []
        self.providers: list[Callable[..., Any]] = []
        self.schedules: list[Every] = []

    def handler(self, queue: str, *, type: str | None = None, **options: Unpack[GroupOptions]) -> Callable[[F], F]:
        """The function handles the messages of a queue, or those of one `type`, each by itself."""
        return self._registers("message", queue, type=type, **options)

    def command(self, name: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """The function carries out a command: a message in the queue of that name, and every message of the queues that
        specs map to it by `map_to`. What it returns is kept as the result of the message."""
        return self._registers("command", name, **options)

    def batch(self, queue: str, *, size: int = 100, **options: Unpack[GroupOptions]) -> Callable[[F], F]:
        """The function handles up to `size` messages at once. Its first parameter is a list of payloads; it returns
        None, or a result for each."""
        return self._registers("batch", queue, size=size, **options)

    def every(
        self,
        interval: str | None = None,
        *,
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Missed = "once",
        name: str | None = None,
        lease_seconds: int | None = None,
    ) -> Callable[[F], F]:
        """The function is called at every tick of a schedule: an interval like `5m`, or cron by the clocks of a time
        zone; once, however many workers there are. The schedule, and the queue that its ticks go through, have the
        name of the function or the one given."""
        if (interval is None) == (cron is None):
            raise InvalidRequest("say when with an interval or with cron, and not with both")
        seconds = None if interval is None else seconds_in(interval)

        def register(function: F) -> F:
            called = name or str(getattr(function, "__name__", ""))
            self._registers("message", called, concurrency=1, lease_seconds=lease_seconds)(function)
            self.schedules.append(Every(name=called, seconds=seconds, cron=cron, timezone=timezone, missed=missed))
            return function

        return register

    def _registers(self, kind: Kind, queue: str, **options: Any) -> Callable[[F], F]:
        def register(function: F) -> F:
            handler = Handler(function=function, queue=queue, kind=kind, **options).check()
            for other in self.handlers:
                if (other.queue, other.group) != (handler.queue, handler.group):
                    continue
                if other.type == handler.type or "batch" in (other.kind, handler.kind):
                    raise InvalidRequest(
                        f"{handler.name} and {other.name} would both handle queue {handler.queue!r:.80}; "
                        "give one of them another group or type"
                    )
            self.handlers.append(handler)
            return function

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """`async def around(ctx, call)` is called for every message or batch, and calls `await call()` for what is
        inside it. The first one registered is outermost."""
        self.middlewares.append(function)
        return function

    def provide(self, function: F) -> F:
        """The function, a coroutine function or an (async) generator makes what parameters annotated with its return
        type are given: once for a worker. A generator goes on when the worker stops."""
        self.providers.append(function)
        return function

    def subscriptions(self, queues: list[str] | None = None) -> list[Subscription]:
        """By queue and group, of all queues or of those named."""
        unknown = sorted(set(queues or ()) - {handler.queue for handler in self.handlers})
        if unknown:
            raise InvalidRequest(f"the app has no handler for queue {unknown[0]!r:.80}")
        found: dict[tuple[str, str], dict[str | None, Handler]] = {}
        for handler in self.handlers:
            if not queues or handler.queue in queues:
                found.setdefault((handler.queue, handler.group), {})[handler.type] = handler
        return [Subscription(queue=queue, group=group, handlers=handlers) for (queue, group), handlers in found.items()]
