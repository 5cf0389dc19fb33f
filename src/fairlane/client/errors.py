"""Errors of the client: maps error responses to the classes in `fairlane.errors`."""

from __future__ import annotations

import msgspec

from fairlane import errors
from fairlane.errors import FairlaneError
from fairlane.runtime.backoff import seconds_of
from fairlane.wire.problem import Problem

RETRY_AFTER = 5.0  # seconds, when an overloaded broker gives none


_decode = msgspec.json.Decoder(Problem).decode
_CLASSES = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FairlaneError) and "code" in vars(kind)
}


def error_of(status: int, body: bytes, retry_after: str | None = None) -> FairlaneError:
    """Return the error for a response with this status and body."""
    try:
        problem = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem()  # not from a broker, perhaps from a proxy
    problem.error = problem.error or f"the server answered {status} without a reason"
    if problem.retry_after is None:
        problem.retry_after = seconds_of(retry_after)
    return error_from_problem(problem, _class_of_status(status))


def error_from_problem(problem: Problem, otherwise: type[FairlaneError] = FairlaneError) -> FairlaneError:
    """Return the error class of the problem's code, or an `otherwise` with that code if the code is unknown."""
    known = _CLASSES.get(problem.code or "")
    kind = known or otherwise
    error: FairlaneError
    if issubclass(kind, errors.QueueFull):
        error = kind(
            problem.error,
            depth=problem.queue_depth,
            capacity=problem.capacity,
            retry_after=_or_default(problem.retry_after),
        )
    elif issubclass(kind, errors.Overloaded):
        error = kind(problem.error, retry_after=_or_default(problem.retry_after))
    elif issubclass(kind, errors.TransactionRefused):
        error = kind(problem.error, index=problem.failed_index)
    elif issubclass(kind, errors.PayloadInvalid):
        error = kind(problem.error, path=problem.path)
    elif issubclass(kind, errors.SpecError):
        error = errors.InvalidRequest(problem.error)
    else:
        error = kind(problem.error)
    if known is None and problem.code:
        error.code = problem.code
    return error


def _or_default(seconds: float | None) -> float:
    return RETRY_AFTER if seconds is None else seconds


def _class_of_status(status: int) -> type[FairlaneError]:
    if status == 404:
        return errors.NotFound
    if status == 409:
        return errors.Conflict
    if status == 429:
        return errors.Overloaded
    if status in (400, 408, 413, 414, 422, 431):
        return errors.InvalidRequest
    if status in (502, 503, 504):
        return errors.Unavailable
    return errors.BrokerFailed if status >= 500 and status not in (501, 505) else FairlaneError
