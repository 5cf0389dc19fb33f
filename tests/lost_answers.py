"""Store calls that were applied but whose answer was lost."""

from __future__ import annotations

from typing import Any

from fairlane.errors import FairlaneError, OutcomeUnknown, StoreUnavailable

APPLIED = OutcomeUnknown("the answer was lost")
"""The answer is lost after the store applied the call."""
AWAY = StoreUnavailable("the database does not answer")
"""The call is lost before the store did anything."""


def fails(family: Any, verb: str, *faults: FairlaneError | None) -> None:
    """Let the next calls of a family's verb fail with these errors, one each. None and later calls succeed."""
    real = getattr(family, verb)
    left = list(faults)

    async def failing(*arguments: Any, **options: Any) -> Any:
        fault = left.pop(0) if left else None
        if not left:
            setattr(family, verb, real)
        if fault is None or fault is APPLIED:
            answer = await real(*arguments, **options)
        if fault is not None:
            raise fault
        return answer

    setattr(family, verb, failing)
