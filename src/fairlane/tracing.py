"""Trace context: what a message carries in its headers so that the spans of all who handle it are one trace (W3C Trace
Context). It is handed on whether spans are made or not; `fairlane.otel` makes them, and is imported when they are."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlane.model.limits import HEADER_CHARS_MAX, HEADERS_MAX
from fairlane.model.message import PushItem

if TYPE_CHECKING:
    from fairlane.otel import Spans

Handle = Callable[[Any, list[Any]], Awaitable[Any]]
PARENT: Final = "traceparent"
STATE: Final = "tracestate"
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[\x20-\x7e]{1,512}")


def spans() -> Spans | None:
    """The spans of this process; None unless OpenTelemetry is set up in it, by `fairlane.otel.start` or by the program
    itself. Asked once by each client, consumer and server, when it is made."""
    api: Any = sys.modules.get("opentelemetry.trace")
    provider = api.get_tracer_provider() if api is not None else None
    if provider is None or isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    from fairlane.otel import spans_of

    return spans_of(provider)


def handling(handle: Handle, verb: str, name: str) -> Handle:
    """`handle` of a consumer as it is, or inside spans where they are made."""
    found = spans()
    return handle if found is None else found.handling(verb, name, handle)


def failed(error: BaseException) -> None:
    """A handler raised this: its span tells the kind of it, not the text, which may have data in it."""
    if (found := spans()) is not None:
        found.failed(error)


def carried(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The trace context in the headers of a message."""
    return {name: headers[name] for name in (PARENT, STATE) if name in headers} if headers else {}


def of_request(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """The trace context of an HTTP request, if it has one that is well formed."""
    parent, state = headers.get(b"traceparent"), headers.get(b"tracestate")
    if parent is None or not _PARENT.fullmatch(parent):
        return {}
    found = {PARENT: parent.decode("ascii")}
    if state is not None and _STATE.fullmatch(state):
        found[STATE] = state.decode("ascii")
    return found


def give(items: Iterable[PushItem], context: Mapping[str, str]) -> None:
    """Give it to the items that carry none of their own, and have room for it."""
    for item in items if context else ():
        headers = item.headers or {}
        joined = {**headers, **context}
        chars = sum(len(name) + len(value) for name, value in joined.items())
        if PARENT not in headers and len(joined) <= HEADERS_MAX and chars <= HEADER_CHARS_MAX:
            item.headers = joined


def current() -> dict[str, str]:
    """The trace context of the span that is current here; empty if there is none."""
    found = spans()
    return {} if found is None else found.context()


def trace_of(context: Mapping[str, str]) -> str | None:
    """The id of the trace that a context is of."""
    return context[PARENT][3:35] if PARENT in context else None


def onward(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The trace context for what a message with these headers leads to: of the span that handles it, or as it came."""
    came, here = carried(headers), current()
    return here if here and (not came or trace_of(here) == trace_of(came)) else came
