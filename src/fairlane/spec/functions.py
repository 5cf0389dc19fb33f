"""The functions of expressions, by name: what they take, what they give, and what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fairlane.spec.budget import spend
from fairlane.spec.operators import Mismatch, kind

Taken = Literal["text", "sized", "scalar"]


class KnownFunction(NamedTuple):
    call: Callable[..., Any]
    takes: tuple[Taken, ...]
    """Its operands; of a method the first is what stands before the dot."""
    gives: Literal["string", "int", "float", "bool"]


def _size(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise Mismatch(f"size is of a string, a list or a map, not {kind(value)}")


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise Mismatch(f"string is of a number, a bool or a string, not {kind(value)}")


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float:
        return _within(int(value))
    # Python's own reading of numbers is more generous than anybody expects: blanks, underscores, other digits.
    if type(value) is str and len(value) < 21 and value.removeprefix("-").isdecimal() and value.isascii():
        return _within(int(value))
    raise Mismatch(f"this {kind(value)} is no whole number")


def _within(value: int) -> int:
    if -(2**63) <= value < 2**63:
        return value
    raise Mismatch("the number is too large")


def _double(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    try:
        if type(value) is str and value.isascii() and "_" not in value:
            return float(value)
    except ValueError:
        pass
    raise Mismatch(f"this {kind(value)} is no number")


def _on_text(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def call(*texts: Any) -> Any:
        for text in texts:
            if type(text) is not str:
                raise Mismatch(f"{name} is for strings, not {kind(text)}")
            spend(len(text))
        return act(*texts)

    return call


FUNCTIONS: dict[str, KnownFunction] = {
    "size": KnownFunction(_size, ("sized",), "int"),
    "string": KnownFunction(_string, ("scalar",), "string"),
    "int": KnownFunction(_int, ("scalar",), "int"),
    "double": KnownFunction(_double, ("scalar",), "float"),
}
METHODS: dict[str, KnownFunction] = {
    "size": FUNCTIONS["size"],
    "contains": KnownFunction(_on_text("contains", str.__contains__), ("text", "text"), "bool"),
    "startsWith": KnownFunction(_on_text("startsWith", str.startswith), ("text", "text"), "bool"),
    "endsWith": KnownFunction(_on_text("endsWith", str.endswith), ("text", "text"), "bool"),
    "lowerAscii": KnownFunction(_on_text("lowerAscii", lambda text: _ascii(text, str.lower)), ("text",), "string"),
    "upperAscii": KnownFunction(_on_text("upperAscii", lambda text: _ascii(text, str.upper)), ("text",), "string"),
    "trim": KnownFunction(_on_text("trim", str.strip), ("text",), "string"),
}


def _ascii(text: str, change: Callable[[str], str]) -> str:
    """Letters beyond ASCII stay as they are."""
    if text.isascii():
        return change(text)
    return "".join(change(letter) if letter.isascii() else letter for letter in text)
