"""Errors as answers: the tree of `fairlane.errors`, each with its status."""

from __future__ import annotations

import logging
import math
from typing import Any

from fairlane import errors
from fairlane.http.message import Response, error_response

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


def problem(error: Exception) -> Response:
    """The answer for an error. What we did not foresee is logged whole and told in one sentence."""
    if not isinstance(error, errors.FairlaneError):
        log.error("a request failed in a way nobody foresaw", exc_info=error)
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
    return error_response(status, error.code, str(error), headers=headers, **more)
