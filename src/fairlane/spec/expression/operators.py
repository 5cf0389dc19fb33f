"""Operators and functions of expressions with the semantics of CEL, and the budget of an evaluation.

Values are JSON values. A wrong operand is a `Mismatch` and is never converted: `1 + "a"` and `true < 2` are errors, and
so is a number beyond 64 bits. Python is more lenient, for example `True == 1`.

Expressions run on the broker's event loop, and any user who may apply a spec can write them. An expression that copies
a large payload a hundred times must fail for its message and not block the broker. One unit of the budget is about one
byte copied or compared.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.spec import ir
from fairlane.spec.types import BOOL, FLOAT, INT, STRING

WORK_MAX = 4 * MESSAGE_BYTES_MAX
SIZE_MAX = MESSAGE_BYTES_MAX
"""Maximum size of the result of a mapping, about the maximum size of a message."""
ITEM = 16
"""Cost of an item of a list or map."""
_SMALL = (int, float, bool, type(None))
_INT_MAX = 2**63


class TooCostly(Exception):
    """The evaluation exceeded its budget."""


class _Budget(threading.local):
    """The budget of the evaluation in this thread. Evaluations do not interrupt each other."""

    left = WORK_MAX


_budget = _Budget()


def reset_budget() -> None:
    """Reset the budget before an evaluation."""
    _budget.left = WORK_MAX


def spend(units: int) -> None:
    _budget.left -= units
    if _budget.left < 0:
        raise TooCostly("this takes too much work for one message")


def used_budget() -> int:
    """Return the units that the last evaluation in this thread has used."""
    return WORK_MAX - _budget.left


def size_of(value: Any) -> int:
    """Return the cost of copying or comparing a value, not counting the contents of its items."""
    return len(value) if type(value) is str else ITEM * len(value) if isinstance(value, list | dict) else 1


def check_size(built: dict[str, Any]) -> None:
    """Raise TooCostly if the values exceed the maximum size of a message. Stops as soon as that is known."""
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
        raise TooCostly(f"the result has more than {SIZE_MAX} bytes from one message")


class Mismatch(Exception):
    """The message has a value that the expression cannot use."""


def kind(value: object) -> str:
    """Return the name of a value's type in the language."""
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


def _ordering(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if (type(left) is str and type(right) is str) or (_is_number(left) and _is_number(right)):
            return compare(left, right)
        raise Mismatch(f"`{symbol}` needs two numbers or two strings, not {kind(left)} and {kind(right)}")

    return ordered


def _is_number(value: object) -> bool:
    return type(value) is int or type(value) is float


def _arithmetic(symbol: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def computed(left: Any, right: Any) -> Any:
        if _is_number(left) and _is_number(right):
            return _bounded(compute(left, right))
        if symbol == "+" and type(left) is type(right) and isinstance(left, str | list):
            spend(size_of(left) + size_of(right))  # charge before the copy is made
            return left + right
        raise Mismatch(f"`{symbol}` does not work on {kind(left)} and {kind(right)}")

    return computed


def _bounded(value: Any) -> Any:
    if (-_INT_MAX <= value < _INT_MAX) if type(value) is int else math.isfinite(value):
        return value
    raise Mismatch("the number is too large")


def _divide(left: Any, right: Any) -> Any:
    """Divide. Whole numbers give a whole number, truncated towards zero."""
    if right == 0:
        raise Mismatch("division by zero")
    if type(left) is int and type(right) is int:
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) is (right < 0) else -quotient
    return left / right


def _remainder(left: Any, right: Any) -> Any:
    """Return the remainder, with the sign of the dividend."""
    if type(left) is not int or type(right) is not int:
        raise Mismatch(f"`%` needs whole numbers, not {kind(left)} and {kind(right)}")
    return left - right * _divide(left, right)


def contains(item: Any, container: Any) -> bool:
    """Return `item in container`. The container is a list with items, or a map with keys."""
    if isinstance(container, list):
        spend(size_of(container))
        return any(equal(item, each) for each in container)
    if isinstance(container, dict):
        return type(item) is str and item in container
    raise Mismatch(f"`in` needs a list or a map, not {kind(container)}")


_ORDERED = ("int", "float", "string")
_NUMBERS = ("int", "float")
# Each operator with its function and the families of types that it accepts.
BINARY: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "==": (equal, ()),
    "!=": (lambda left, right: not equal(left, right), ()),
    "<": (_ordering("<", operator.lt), _ORDERED),
    "<=": (_ordering("<=", operator.le), _ORDERED),
    ">": (_ordering(">", operator.gt), _ORDERED),
    ">=": (_ordering(">=", operator.ge), _ORDERED),
    "in": (contains, ("list", "map")),
    "+": (_arithmetic("+", operator.add), (*_NUMBERS, "string", "list")),
    "-": (_arithmetic("-", operator.sub), _NUMBERS),
    "*": (_arithmetic("*", operator.mul), _NUMBERS),
    "/": (_arithmetic("/", _divide), _NUMBERS),
    "%": (_arithmetic("%", _remainder), ("int",)),
}


def negative(value: Any) -> Any:
    if _is_number(value):
        return _bounded(-value)
    raise Mismatch(f"`-` needs a number, not {kind(value)}")


def truth(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise Mismatch(f"expected true or false, not {kind(value)}")


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


def walk(keys: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that follows the keys into a message."""

    def walked(value: Any) -> Any:
        for key in keys:
            if type(value) is not dict:
                raise Mismatch(f"{kind(value)} has no `{key}`")
            value = value[key]
        return value

    return walked


def map_key(key: Any) -> str:
    if type(key) is not str:
        raise Mismatch(f"the keys of a map are strings, not {kind(key)}")
    return key


def _size(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise Mismatch(f"size needs a string, a list or a map, not {kind(value)}")


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise Mismatch(f"string needs a number, a bool or a string, not {kind(value)}")


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float:
        return int(_bounded(int(value)))
    # Python's int() and float() also accept blanks, underscores and non-ASCII digits.
    if type(value) is str and len(value) < 21 and value.removeprefix("-").isdecimal() and value.isascii():
        return int(_bounded(int(value)))
    raise Mismatch(f"this {kind(value)} is not a whole number")


def _double(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    try:
        if type(value) is str and value.isascii() and "_" not in value:
            return float(value)
    except ValueError:
        pass
    raise Mismatch(f"this {kind(value)} is not a number")


def _on_text(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def call(*texts: Any) -> Any:
        for text in texts:
            if type(text) is not str:
                raise Mismatch(f"{name} needs strings, not {kind(text)}")
            spend(len(text))
        return act(*texts)

    return call


def _ascii(text: str, change: Callable[[str], str]) -> str:
    """Change the case of ASCII letters only."""
    if text.isascii():
        return change(text)
    return "".join(change(letter) if letter.isascii() else letter for letter in text)


class KnownFunction(NamedTuple):
    """A function: its implementation, the type families of its operands, and its result type."""

    call: Callable[..., Any]
    takes: tuple[tuple[str, ...], ...]
    """The first operand of a method is the value before the dot."""
    gives: ir.Type


_SIZED = ("string", "list", "map")
_SCALAR = ("string", "int", "float", "bool")
_TEXT = ("string",)
FUNCTIONS = {
    "size": KnownFunction(_size, (_SIZED,), INT),
    "string": KnownFunction(_string, (_SCALAR,), STRING),
    "int": KnownFunction(_int, (_SCALAR,), INT),
    "double": KnownFunction(_double, (_SCALAR,), FLOAT),
}
METHODS = {
    "size": FUNCTIONS["size"],
    "contains": KnownFunction(_on_text("contains", str.__contains__), (_TEXT, _TEXT), BOOL),
    "startsWith": KnownFunction(_on_text("startsWith", str.startswith), (_TEXT, _TEXT), BOOL),
    "endsWith": KnownFunction(_on_text("endsWith", str.endswith), (_TEXT, _TEXT), BOOL),
    "lowerAscii": KnownFunction(_on_text("lowerAscii", lambda text: _ascii(text, str.lower)), (_TEXT,), STRING),
    "upperAscii": KnownFunction(_on_text("upperAscii", lambda text: _ascii(text, str.upper)), (_TEXT,), STRING),
    "trim": KnownFunction(_on_text("trim", str.strip), (_TEXT,), STRING),
}
