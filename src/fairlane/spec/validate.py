"""Types made into validators once, and used for each message.

A validator is a msgspec decoder: the check happens in C while the bytes are read, nothing of a `json` part is even
decoded, and what does not fit is told with its path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from fairlane.errors import PayloadInvalid
from fairlane.spec import ir

_SCALARS: dict[str, Any] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "time": Annotated[datetime, msgspec.Meta(tz=True)],
    "uuid": UUID,
    "bytes": bytes,
}
_SENTENCES = {
    "Expected `datetime` with a timezone component": "expected a time with its offset from UTC, like 12:00:00Z",
    "Invalid RFC3339 encoded datetime": "expected a time like 2026-01-31T12:00:00Z",
    "Invalid UUID": "expected a uuid",
    "Invalid base64 encoded string": "expected bytes in base64",
}
_NAMES = {"str": "string", "object": "map", "array": "list", "datetime": "time"}


def compile_validator(record: ir.RecordType) -> Callable[[bytes], None]:
    """A function of a message's JSON, which raises PayloadInvalid with the path of what is wrong."""
    decode = msgspec.json.Decoder(_native(record, json=msgspec.Raw)).decode

    def validate(payload: bytes) -> None:
        try:
            decode(payload)
        except msgspec.ValidationError as error:
            raise _explained(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PayloadInvalid(f"the message is no JSON: {error}", path="") from None

    return validate


def compile_input_validator(record: ir.RecordType) -> Callable[[dict[str, Any]], None]:
    """The same for what expressions made of a message: the input of a command."""
    wanted = _native(record, json=Any)

    def validate(value: dict[str, Any]) -> None:
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            raise _explained(error) from None

    return validate


def _native(type_: ir.Type, *, json: Any) -> Any:
    """The Python type that msgspec compiles."""
    native = _present(type_, json=json)
    return native | None if type_.optional and native is not json else native


def _present(type_: ir.Type, *, json: Any) -> Any:
    match type_:
        case ir.Scalar(of="json"):
            return json
        case ir.Scalar(of=of):
            return _SCALARS[of]
        case ir.ListType(items=items):
            return list[_native(items, json=json)]  # type: ignore[misc]
        case ir.MapType(values=values):
            return dict[str, _native(values, json=json)]  # type: ignore[misc]
        case ir.EnumType(choices=choices):
            return Literal[choices]
        case ir.RecordType(fields=fields):
            return _struct(fields, json=json)


def _struct(fields: dict[str, ir.Type], *, json: Any) -> Any:
    """Names of our own inside: those of a message may be words that Python keeps for itself."""
    names = {f"f{number}": name for number, name in enumerate(fields)}
    required, optional = [], []
    for inner, name in names.items():
        native = _native(fields[name], json=json)
        if fields[name].optional:
            optional.append((inner, native, None))
        else:
            required.append((inner, native))
    return msgspec.defstruct("Message", [*required, *optional], rename=names, kw_only=True)


_ERROR_TEXT = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>(?:key in )?\$.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)


def _explained(error: msgspec.ValidationError) -> PayloadInvalid:
    """msgspec's sentence in the words of the language: `payload.incident.urgency: expected string, got int`."""
    match = _ERROR_TEXT.fullmatch(str(error))
    assert match is not None
    path = (match["path"] or "$").removeprefix("$").removeprefix(".")
    what = match["what"]
    if missing := _MISSING.fullmatch(what):
        path = f"{path}.{missing['name']}" if path else missing["name"]
        what = "is missing"
    elif expected := _EXPECTED.fullmatch(what):
        what = f"expected {_worded(expected['wanted'])}, got {_worded(expected['got'])}"
    else:
        what = _SENTENCES.get(what, what[:1].lower() + what[1:])
    return PayloadInvalid(f"{path}: {what}" if path else f"the message: {what}", path=path)


def _worded(names: str) -> str:
    return " or ".join(_NAMES.get(name, name) for name in names.split(" | "))
