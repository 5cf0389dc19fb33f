"""Operators and functions of expressions on values, as CEL has it. The values are those of JSON.

A wrong operand is a `Mismatch`, never a conversion: `1 + "a"` and `true < 2` are errors, and so is a number that leaves
64 bits. Python would be more generous, and `True == 1` there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from fairlane.spec.budget import size_of, spend

_INT_MAX = 2**63


class Mismatch(Exception):
    """The value that a message has here is none that the expression can go on with."""


def kind(value: object) -> str:
    """The name of a value's type, as the language has it."""
    if value is None:
        return "null"
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type, str] = {str: "string", bool: "bool", int: "int", float: "float", list: "list", dict: "map"}


def equal(left: Any, right: Any) -> bool:
    if (type(left) is bool) is not (type(right) is bool):
        return False
    if isinstance(left, str | list | dict) and type(left) is type(right):
        spend(size_of(left))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


def unequal(left: Any, right: Any) -> bool:
    return not equal(left, right)


def _ordering(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if (type(left) is str and type(right) is str) or (_is_number(left) and _is_number(right)):
            return compare(left, right)
        raise Mismatch(f"`{symbol}` is for two numbers or two strings, not {kind(left)} and {kind(right)}")

    return ordered


def _is_number(value: object) -> bool:
    return type(value) is int or type(value) is float


def _arithmetic(symbol: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def computed(left: Any, right: Any) -> Any:
        if _is_number(left) and _is_number(right):
            return _bounded(compute(left, right))
        if symbol == "+" and type(left) is type(right) and isinstance(left, str | list):
            spend(size_of(left) + size_of(right))  # before it is made
            return left + right
        raise Mismatch(f"`{symbol}` is not for {kind(left)} and {kind(right)}")

    return computed


def _bounded(value: Any) -> Any:
    if (-_INT_MAX <= value < _INT_MAX) if type(value) is int else math.isfinite(value):
        return value
    raise Mismatch("the number is too large")


def _divide(left: Any, right: Any) -> Any:
    """Whole numbers stay whole, cut towards zero."""
    if right == 0:
        raise Mismatch("division by zero")
    if type(left) is int and type(right) is int:
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) is (right < 0) else -quotient
    return left / right


def _remainder(left: Any, right: Any) -> Any:
    """Has the sign of what was divided."""
    if type(left) is not int or type(right) is not int:
        raise Mismatch(f"`%` is for whole numbers, not {kind(left)} and {kind(right)}")
    return left - right * _divide(left, right)


def contains(item: Any, container: Any) -> bool:
    """`item in container`: an item of a list, or a key of a map."""
    if isinstance(container, list):
        spend(size_of(container))
        return any(equal(item, each) for each in container)
    if isinstance(container, dict):
        return type(item) is str and item in container
    raise Mismatch(f"`in` looks into a list or a map, not {kind(container)}")


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "==": equal,
    "!=": unequal,
    "<": _ordering("<", operator.lt),
    "<=": _ordering("<=", operator.le),
    ">": _ordering(">", operator.gt),
    ">=": _ordering(">=", operator.ge),
    "in": contains,
    "+": _arithmetic("+", operator.add),
    "-": _arithmetic("-", operator.sub),
    "*": _arithmetic("*", operator.mul),
    "/": _arithmetic("/", _divide),
    "%": _arithmetic("%", _remainder),
}


def negative(value: Any) -> Any:
    if _is_number(value):
        return _bounded(-value)
    raise Mismatch(f"`-` is for numbers, not {kind(value)}")


def truth(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise Mismatch(f"true or false is needed here, not {kind(value)}")


def element(container: Any, key: Any) -> Any:
    if isinstance(container, dict):
        if type(key) is str and key in container:
            return container[key]
        raise Mismatch(f"there is no `{key}`")
    if isinstance(container, list) and type(key) is int:
        if 0 <= key < len(container):
            return container[key]
        raise Mismatch(f"there is no item {key} in a list of {len(container)}")
    raise Mismatch(f"{kind(container)} has no `{key}`")
