"""Calls of a store that were applied and whose answer did not come back."""

from __future__ import annotations

from typing import Any

from fairlane.errors import FairlaneError, OutcomeUnknown, StoreUnavailable

APPLIED = OutcomeUnknown("the answer was lost")
"""Once the store did what it was asked to."""
AWAY = StoreUnavailable("the database does not answer")
"""And nothing was done."""


def fails(family: Any, verb: str, *faults: FairlaneError | None) -> None:
    """The next calls of a family's verb meet these, one each, None nothing; those behind them go through."""
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
