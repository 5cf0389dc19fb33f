"""Unknown outcomes, of calls of the store whose answer was lost: made again under the same ids, and never said to have
failed."""

from __future__ import annotations

from typing import Final

from fairlane.errors import FairlaneError, OutcomeUnknown

UNKNOWN_PAUSES: Final = (0.1, 0.4, 1.6)
"""Seconds before each further try."""


def still_unknown(error: FairlaneError) -> OutcomeUnknown:
    """What ends a call that may have been applied: that a later try failed says nothing of an earlier one."""
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(
        f"this may have been done or not: an answer of the store was lost, and then it said: {error}; "
        "repeat it with the same ids"
    )
