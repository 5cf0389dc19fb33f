"""The app: registers handlers, providers, middlewares and schedules."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, SECONDS_MAX
from fairlane.model.names import QUEUE_MODE, check_count, check_flag, check_name, count_or_none, name_or_none
from fairlane.model.queue import queue_options
from fairlane.model.unique import Unique
from fairlane.model.verdict import Dead, Fail, Verdict
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.durations import seconds_in
from fairlane.wire.schedules import Missed, ScheduleOptions
from fairlane.worker.context import Context
from fairlane.worker.parameters import check_payload_type

CONCURRENCY = 10
BACKOFF_SECONDS_MAX = 60.0

F = TypeVar("F", bound=Callable[..., Any])
Exceptions = type[Exception] | tuple[type[Exception], ...]
Kind = Literal["message", "batch", "command"]
Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, Next], Awaitable[Any]]


class HandlerOptions(TypedDict, total=False):
    """Options of a handler. `Handler` has the defaults."""

    concurrency: int | None
    """Calls, or batches, that a worker runs at once."""
    lease_seconds: int | None
    processes: bool
    """Run the function in separate processes."""
    timeout: float | None
    """Time limit of one call in seconds. A longer call is a failed attempt."""
    max_attempts: int | None
    """Number of attempts before a message becomes a dead letter. The queue's own limit also applies."""
    backoff: float | None
    """Seconds to wait after the first failed attempt, doubled after each further one. Overrides the queue's backoff."""
    backoff_max: float
    """Upper limit of the backoff in seconds, 60 by default."""
    jitter: bool
    """Wait for a random time between half of the backoff and all of it."""
    retry_on: Exceptions
    """Exceptions after which a message is retried. After any other, it becomes a dead letter at once."""
    dead_on: Exceptions
    """Exceptions after which a message becomes a dead letter at once."""
    options: dict[str, Any]
    """Options of the queue, as `Client.configure` takes them. `--plan` shows what would change, `--apply` sets them."""


class GroupOptions(HandlerOptions, total=False):
    group: str


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """A registered function and its options."""

    function: Callable[..., Any]
    queue: str
    group: str = QUEUE_MODE
    kind: Kind
    type: str | None = None
    size: int = 1
    """Maximum number of messages in one call."""
    concurrency: int | None = None
    lease_seconds: int | None = None
    """Lease time in seconds. None means the lease time of the queue."""
    processes: bool = False
    timeout: float | None = None
    max_attempts: int | None = None
    backoff: float | None = None
    """First backoff in seconds. None means the queue's backoff, or the worker's default if the queue has none."""
    backoff_max: float = BACKOFF_SECONDS_MAX
    jitter: bool = False
    retry_on: Exceptions = Exception
    dead_on: Exceptions = ()
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    def check(self) -> Handler:
        """Return the handler.

        Raises InvalidRequest for the first invalid option, or if the function does not suit a handler.
        """
        check_name("queue", self.queue)
        check_name("group", self.group)
        name_or_none("type", self.type)
        check_count("size", self.size, least=1, most=BATCH_ITEMS_MAX)
        count_or_none("lease_seconds", self.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        count_or_none("concurrency", self.concurrency, least=1, most=BATCH_ITEMS_MAX)
        count_or_none("max_attempts", self.max_attempts, least=1, most=BATCH_ITEMS_MAX)
        for name, least in (("timeout", 0.001), ("backoff", 0.0), ("backoff_max", 0.0)):
            seconds = getattr(self, name)
            if seconds is None and name != "backoff_max":
                continue
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                raise InvalidRequest(f"{name} must be a number of seconds, not {type(seconds).__name__}")
            if not least <= seconds <= SECONDS_MAX:
                raise InvalidRequest(f"{name} is {seconds}; it must be between {least:g} and {SECONDS_MAX} seconds")
        check_flag("jitter", self.jitter)
        for name in ("retry_on", "dead_on"):
            _check_exceptions(name, getattr(self, name))
        queue_options(**self.options)
        if not callable(self.function):
            raise InvalidRequest(f"a handler must be a function, not {type(self.function).__name__}")
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise InvalidRequest(
                f"{self.name} is a generator function, which runs nothing when called; do not use yield"
            )
        return self

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__qualname__", self.function))

    def described(self, concurrency: int) -> str:
        """Describe the handler for the log: the messages that it takes, and its concurrency."""
        parts = [
            f"type {self.type!r}" if self.type is not None else None,
            f"group {self.group!r}" if self.group != QUEUE_MODE else None,
            f"batches of up to {self.size}" if self.kind == "batch" else None,
            f"{concurrency} at once",
        ]
        return ", ".join(part for part in parts if part is not None)

    def after_failure(self, failed: Fail, attempt: int, otherwise: float | None) -> Verdict:
        """Return the verdict on a message after a failed attempt with this number.

        `otherwise` is the backoff in seconds if the handler has none; None means the queue's backoff.
        """
        if self.max_attempts is not None and attempt >= self.max_attempts:
            return Dead(failed.error, failed.traceback)
        first = otherwise if self.backoff is None else self.backoff
        if failed.after is not None or first is None:
            return failed
        seconds = min(self.backoff_max, first * 2.0 ** min(attempt - 1, 40))
        if self.jitter:
            seconds *= random.uniform(0.5, 1.0)  # noqa: S311  # spreads load
        return Fail(failed.error, seconds, failed.traceback)

    def after_error(self, error: BaseException, verdict: Verdict | None) -> Verdict | None:
        """Return the verdict on a message whose handler raised `error`: a dead letter if no retry is wanted.

        Only an `Exception` can be final. Others end the worker, and say nothing about the message.
        """
        final = isinstance(error, self.dead_on) or not isinstance(error, self.retry_on)
        if final and isinstance(error, Exception) and isinstance(verdict, Fail):
            return Dead(verdict.error, verdict.traceback)
        return verdict


def _check_exceptions(name: str, classes: object) -> None:
    for one in classes if isinstance(classes, tuple) else (classes,):
        if not isinstance(one, type) or not issubclass(one, Exception):
            raise InvalidRequest(f"{name} must be a class of exceptions or a tuple of them, not {one!r:.80}")


class Every(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that an app declares. It has the same name as the queue that it pushes to."""

    name: str
    seconds: int | None
    cron: str | None
    timezone: str
    missed: Missed
    unique: Unique | None = None


class HandlerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers of one queue and group.

    There is one batch handler, or one handler per message type. The type None handles all other types.
    """

    queue: str
    group: str
    handlers: dict[str | None, Handler]
    mapping: Callable[[bytes], bytes] | None = None
    """Maps a message to the input of a command. Without it the message is the input."""

    @property
    def size(self) -> int:
        return max(handler.size for handler in self.handlers.values())

    @property
    def batched(self) -> bool:
        return any(handler.kind == "batch" for handler in self.handlers.values())

    @property
    def lease_seconds(self) -> int | None:
        """The longest lease time of the handlers. None means the lease time of the queue."""
        return max((one.lease_seconds for one in self.handlers.values() if one.lease_seconds), default=None)

    def concurrency(self, otherwise: int | None = None) -> int:
        """Return the highest concurrency of the handlers, or `otherwise` or the default if no handler sets one."""
        asked = [handler.concurrency for handler in self.handlers.values() if handler.concurrency]
        return max(asked) if asked else otherwise or (1 if self.batched else CONCURRENCY)


_OPTIONS: Final = {
    "handler": GroupOptions.__optional_keys__ | {"type"},
    "batch": GroupOptions.__optional_keys__ | {"size"},
    "command": HandlerOptions.__optional_keys__,
    "every": HandlerOptions.__optional_keys__,
}
"""Allowed options by decorator."""


def _check_options(decorator: str, options: dict[str, Any]) -> None:
    if unknown := sorted(options.keys() - _OPTIONS[decorator]):
        from fairlane.spec.text.source import suggestion  # only needed for the error

        meant = suggestion(unknown[0], _OPTIONS[decorator])
        raise InvalidRequest(f"@app.{decorator} has no option {unknown[0]!r:.80}; {meant}")


class App:
    """Registers handlers; `fairlane worker module:app` runs them.

        app = App()

        @app.handler("orders", group="billing", concurrency=8)
        async def bill(order: Order, ctx: Context) -> None: ...

    A handler's first parameter is the payload, decoded as the type of its annotation. Parameters annotated `Context`
    or with the return type of a provider get the context or the provided object. Coroutine functions run on an event
    loop, other functions in threads, or in processes with `processes=True`.
    """

    def __init__(self, name: str = "app") -> None:
        self.name = check_name("name", name)
        self.handlers: list[Handler] = []
        self.middlewares: list[Middleware] = []
        self.providers: list[Callable[..., Any]] = []
        self.schedules: list[Every] = []

    def handler(self, queue: str, *, type: str | None = None, **options: Unpack[GroupOptions]) -> Callable[[F], F]:
        """Register a function that handles single messages of a queue, or only those of one `type`."""
        return self._register("handler", "message", queue, type=type, **options)

    def command(self, name: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Register a function that runs a command.

        It handles the messages in the queue of that name, and those of all queues that specs map to the command with
        `map_to`. Its return value is stored as the result of the message.
        """
        return self._register("command", "command", name, **options)

    def batch(self, queue: str, *, size: int = 100, **options: Unpack[GroupOptions]) -> Callable[[F], F]:
        """Register a function that handles up to `size` messages at once.

        Its first parameter is a list of payloads. It returns None, or one result per message.
        """
        return self._register("batch", "batch", queue, size=size, **options)

    def every(
        self,
        interval: str | None = None,
        *,
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Missed = "once",
        unique: Unique | None = None,
        name: str | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[F], F]:
        """Register a function that runs at every tick of a schedule, on one worker only.

        The schedule is an interval such as `5m`, or cron in a time zone. The schedule and its queue have the name of
        the function, or `name`. With `unique` a tick is left out while another one waits (`while_waiting`), or waits or
        runs (`while_running`).
        """
        if callable(interval):
            raise InvalidRequest('@app.every needs an interval: write @app.every("5m")')
        if (interval is None) == (cron is None):
            raise InvalidRequest("give exactly one of an interval and cron")
        seconds = None if interval is None else seconds_in(interval)

        def register(function: F) -> F:
            from fairlane.runtime.ticks import next_tick  # cron is slow to import

            called = name or str(getattr(function, "__name__", ""))
            times: Any = {"cron": cron, "timezone": timezone, "missed": missed, "unique": unique}
            ticking = ScheduleOptions(queue=called, every_seconds=seconds, **times)
            next_tick(ticking.check(), wall_clock())
            self._register("every", "message", called, **{"concurrency": 1, **options})(function)
            self.schedules.append(Every(name=called, seconds=seconds, **times))
            return function

        return register

    def _register(self, decorator: str, kind: Kind, queue: str, **options: Any) -> Callable[[F], F]:
        if callable(queue):
            raise InvalidRequest(f'@app.{decorator} needs a name: write @app.{decorator}("orders")')
        _check_options(decorator, options)

        def register(function: F) -> F:
            handler = Handler(function=function, queue=queue, kind=kind, **options).check()
            check_payload_type(function, batch=kind == "batch")
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
        """Register a middleware, `async def around(ctx, call)`, which calls `await call()` to go on.

        It runs for every message or batch. The first registered middleware is the outermost.
        """
        self.middlewares.append(function)
        return function

    def provide(self, function: F) -> F:
        """Register a provider for parameters annotated with its return type. It runs once per worker.

        A provider is a function, a coroutine function or a generator, which resumes when the worker stops.
        """
        self.providers.append(function)
        return function

    def declared(self) -> dict[str, dict[str, Any]]:
        """Return the queue options that handlers declare, by queue.

        Raises InvalidRequest if handlers declare different values of an option.
        """
        found: dict[str, dict[str, Any]] = {}
        for handler in self.handlers:
            known = found.setdefault(handler.queue, {})
            for name, value in handler.options.items():
                if known.setdefault(name, value) != value:
                    raise InvalidRequest(
                        f"handlers of queue {handler.queue!r:.80} declare {name} as {known[name]!r} and {value!r}"
                    )
        return found

    def handler_groups(self, queues: list[str] | None = None) -> list[HandlerGroup]:
        """Return the handlers grouped by queue and group, for all queues or those named."""
        unknown = sorted(set(queues or ()) - {handler.queue for handler in self.handlers})
        if unknown:
            raise InvalidRequest(f"the app has no handler for queue {unknown[0]!r:.80}")
        found: dict[tuple[str, str], dict[str | None, Handler]] = {}
        for handler in self.handlers:
            if not queues or handler.queue in queues:
                found.setdefault((handler.queue, handler.group), {})[handler.type] = handler
        return [HandlerGroup(queue=queue, group=group, handlers=handlers) for (queue, group), handlers in found.items()]
