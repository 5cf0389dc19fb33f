"""Problems: errors as answers, the tree of `fairlane.errors`, each with its status. Strangers are told what they can
do; what the store, the disk or the network said is in the log."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from fairlane import errors
from fairlane.http.server import Response, error_response

log = logging.getLogger(__name__)

_STATUSES: list[tuple[type[errors.FairlaneError], int]] = [
    (errors.PayloadInvalid, 422),
    (errors.ExpressionFailed, 422),
    (errors.InvalidRequest, 400),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.CommandFailed, 502),
    (errors.Overloaded, 429),
    (errors.Unavailable, 503),
]

_OUTSIDE = {
    errors.StoreUnavailable.code: "the store does not answer now; try again",
    errors.StoreFull.code: "the store has no room; the broker's log says more",
    errors.StoreCorrupt.code: "stored bytes do not match their checksum; the broker's log says more",
    errors.OutcomeUnknown.code: "it is not known whether this was done; try again with the same transactionId",
}


class Seldom:
    """A limit on log lines that would come again and again: anybody may ask for what fails."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[object, float] = {}

    def allows(self, what: object) -> bool:
        now = time.monotonic()
        if now < self._until.get(what, 0.0):
            return False
        if len(self._until) > 1000:
            self._until.clear()
        self._until[what] = now + self._seconds
        return True


_seldom = Seldom(10.0)


def public_text(error: errors.FairlaneError) -> str:
    """The error in words for whoever asks."""
    outside = _OUTSIDE.get(error.code)
    if outside is None:
        return str(error)
    if _seldom.allows(str(error)):
        log.warning("request answered %s: %s", error.code, error)
    return outside


def _origin(error: Exception) -> tuple[object, ...]:
    """Where it was raised: the same again is the same mistake."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (type(error), trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno))


def problem(error: Exception) -> Response:
    """The answer for an error. What we did not foresee is logged whole and told in one sentence."""
    if not isinstance(error, errors.FairlaneError):
        if _seldom.allows(_origin(error)):
            log.error("unexpected error in a request", exc_info=error)
        return error_response(500, errors.BrokerFailed.code, "the broker failed on this request; its log says more")
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    more: dict[str, Any] = {}
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if isinstance(error, errors.Overloaded):
        headers = ((b"retry-after", str(math.ceil(error.retry_after)).encode()),)
    elif isinstance(error, errors.Unavailable):
        headers = ((b"retry-after", b"1"),)
    if isinstance(error, errors.QueueFull):
        more = {"queueDepth": error.depth, "capacity": error.capacity}
    elif isinstance(error, errors.Overloaded) and error.depth is not None:
        more = {"queueDepth": error.depth}
    elif isinstance(error, errors.PayloadInvalid):
        more = {"path": error.path}
    return error_response(status, error.code, public_text(error), headers=headers, **more)
