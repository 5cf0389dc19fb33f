"""Verdicts from return values of handlers."""

from __future__ import annotations

from typing import Any

from fairlane.errors import InvalidRequest
from fairlane.model.verdict import Dead, Done, Fail, Retry, Verdict

_DONE = Done()


def verdict_of(returned: object, *, keep: bool) -> Verdict:
    """What to say of a message. A value that is no verdict means that it is done; with `keep` it is the result."""
    if isinstance(returned, Done | Fail | Retry | Dead):
        return returned
    return Done(returned) if keep and returned is not None else _DONE


def verdicts_of(returned: Any, count: int) -> list[Verdict]:
    """The same for a batch: None when all are done, or one result for each message."""
    if returned is None:
        return [Done()] * count
    if not isinstance(returned, list | tuple) or len(returned) != count:
        size = len(returned) if isinstance(returned, list | tuple) else type(returned).__name__
        raise InvalidRequest(f"a batch handler returns None or a result for each message: {size}, not {count}")
    return [verdict_of(one, keep=False) for one in returned]
