"""The budget of an evaluation: how much work it may be, and how much may come of it.

Expressions run on the broker's event loop and are written by whoever may apply a spec: one that repeats a large payload
a hundred times must fail for its message, not hold up everybody. The unit is about a byte that is copied or compared.
"""

from __future__ import annotations

import threading
from typing import Any

from fairlane.model.limits import MESSAGE_BYTES_MAX

WORK_MAX = 4 * MESSAGE_BYTES_MAX
SIZE_MAX = MESSAGE_BYTES_MAX
"""Of what a mapping makes of a message: about as much as a message may have."""
ITEM = 16
"""An item of a list or map, in these units."""
_SMALL = (int, float, bool, type(None))


class TooCostly(Exception):
    """The budget is used up."""


class _Budget(threading.local):
    """Of the evaluation that runs in this thread: none is ever interrupted by another."""

    left = WORK_MAX


_budget = _Budget()


def begin() -> None:
    """Once for each evaluation, before it."""
    _budget.left = WORK_MAX


def spend(units: int) -> None:
    _budget.left -= units
    if _budget.left < 0:
        raise TooCostly("this takes too much work for one message")


def size_of(value: Any) -> int:
    """What to copy or to compare a value costs, without what is inside its items."""
    return len(value) if type(value) is str else ITEM * len(value) if isinstance(value, list | dict) else 1


def check_size(built: dict[str, Any]) -> None:
    """TooCostly if the values make more than a message may have. The walk ends where that is known."""
    left = SIZE_MAX
    waiting = []
    for value in built.values():
        if type(value) is str:
            left -= len(value)
        elif type(value) not in _SMALL:
            waiting.append(value)
    while waiting and left >= 0:
        value = waiting.pop()
        left -= size_of(value)
        if type(value) is dict:
            left -= sum(map(len, value))
            waiting.extend(value.values())
        elif type(value) is list:
            waiting.extend(value)
    if left < 0:
        raise TooCostly(f"this makes more than {SIZE_MAX} bytes of one message")
