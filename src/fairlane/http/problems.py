"""Errors as responses: each class of `fairlane.errors` with its status.

Clients get a text that helps them. Errors of the store, the disk or the network are only in the log.
"""

from __future__ import annotations

import logging
import math
import re
from typing import Any

from fairlane import errors
from fairlane.http.server import Request, Response, error_response
from fairlane.model.ids import uuid7

log = logging.getLogger(__name__)
_ID = re.compile(rb"[\x21-\x7e]{1,200}")

_STATUSES: list[tuple[type[errors.FairlaneError], int]] = [
    (errors.PayloadInvalid, 422),
    (errors.ExpressionFailed, 422),
    (errors.InvalidRequest, 400),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.CommandFailed, 502),
    (errors.Overloaded, 429),
    (errors.Unavailable, 503),
]

_OUTSIDE = {
    errors.StoreUnavailable.code: "the store does not answer now; try again",
    errors.StoreFull.code: "the store has no room; the broker's log has the details",
    errors.StoreCorrupt.code: "stored bytes do not match their checksum; the broker's log has the details",
    errors.OutcomeUnknown.code: "it is not known whether this was done; try again with the same transactionId",
}


def public_text(error: errors.FairlaneError, request_id: str = "") -> str:
    """Return the text of an error for the client."""
    outside = _OUTSIDE.get(error.code)
    if outside is None:
        return str(error)
    fields = {"code": error.code, "error": error, "request_id": request_id or None}
    log.warning("request answered %(code)s: %(error)s", fields)
    return outside


def problem(error: Exception, request: Request | None = None) -> Response:
    """Return the response to an error.

    An unexpected error is logged with its traceback, and the client gets one sentence. Both have the id of the request,
    from its header or generated here.
    """
    given = b"" if request is None else request.headers.get(b"x-request-id", b"")
    request_id = given.decode("ascii") if _ID.fullmatch(given) else ""
    if not isinstance(error, errors.FairlaneError):
        request_id = request_id or uuid7()
        log.error("unexpected error in request %(request_id)s", {"request_id": request_id}, exc_info=error)
        text, id = "the broker failed on this request; its log has the details", request_id.encode()
        return error_response(500, errors.BrokerFailed.code, text, headers=((b"x-request-id", id),))
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    more: dict[str, Any] = {}
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if isinstance(error, errors.Overloaded):
        headers = ((b"retry-after", str(math.ceil(error.retry_after)).encode()),)
    elif isinstance(error, errors.Unavailable):
        headers = ((b"retry-after", b"1"),)
    elif isinstance(error, errors.Unauthenticated):
        headers = ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, errors.QueueFull):
        more = {"queueDepth": error.depth, "capacity": error.capacity}
    elif isinstance(error, errors.Overloaded) and error.depth is not None:
        more = {"queueDepth": error.depth}
    elif isinstance(error, errors.PayloadInvalid):
        more = {"path": error.path}
    text, close = public_text(error, request_id), isinstance(error, errors.Unauthenticated)
    return error_response(status, error.code, text, headers=headers, close=close, **more)
