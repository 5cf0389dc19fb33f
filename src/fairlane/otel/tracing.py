"""The W3C trace context in the headers of messages, which joins the spans of all their handlers to one trace.

It is passed on whether or not this process makes spans. `fairlane.otel.spans` is imported only if it does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.model.limits import HEADER_CHARS_MAX, HEADERS_MAX
from fairlane.model.message import PushItem

if TYPE_CHECKING:
    from fairlane.otel.spans import Spans

Handle = Callable[[Any, list[Any]], Awaitable[Any]]
PARENT: Final = "traceparent"
STATE: Final = "tracestate"
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[\x20-\x7e]{1,512}")


def spans() -> Spans | None:
    """Return the spans of this process, or None if OpenTelemetry is not set up in it.

    Clients, consumers and servers call this once, when they are made.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    provider = api.get_tracer_provider() if api is not None else None
    if provider is None or isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    from fairlane.otel.spans import spans_of

    return spans_of(provider)


def traced_handler(handle: Handle, verb: str, name: str) -> Handle:
    """Return the handler of a consumer, wrapped in spans if this process makes them."""
    found = spans()
    return handle if found is None else found.traced_handler(verb, name, handle)


def record_failure(error: BaseException) -> None:
    """Set the error type of the current span. The text is left out, because it may contain message data."""
    if (found := spans()) is not None:
        found.record_failure(error)


def context_in(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the trace context in the headers of a message."""
    return {name: headers[name] for name in (PARENT, STATE) if name in headers} if headers else {}


def context_of_request(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the trace context of an HTTP request. Empty if the request has none, or a malformed one."""
    parent, state = headers.get(b"traceparent"), headers.get(b"tracestate")
    if parent is None or not _PARENT.fullmatch(parent):
        return {}
    found = {PARENT: parent.decode("ascii")}
    if state is not None and _STATE.fullmatch(state):
        found[STATE] = state.decode("ascii")
    return found


def add_context(items: Iterable[PushItem], context: Mapping[str, str]) -> None:
    """Add a trace context to the items that have none, as far as it fits the limits of headers."""
    for item in items if context else ():
        headers = item.headers or {}
        joined = {**headers, **context}
        chars = sum(len(name) + len(value) for name, value in joined.items())
        if PARENT not in headers and len(joined) <= HEADERS_MAX and chars <= HEADER_CHARS_MAX:
            item.headers = joined


def current_context() -> dict[str, str]:
    """Return the trace context of the current span. Empty without a span."""
    found = spans()
    return {} if found is None else found.context()


def trace_id(context: Mapping[str, str]) -> str | None:
    """Return the trace id of a context, or None if it is empty."""
    return context[PARENT][3:35] if PARENT in context else None


def context_for_next(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the trace context for messages and requests that a message with these headers causes.

    It is the context of the current span if that belongs to the same trace, else the one of the message.
    """
    came, here = context_in(headers), current_context()
    return here if here and (not came or trace_id(here) == trace_id(came)) else came
