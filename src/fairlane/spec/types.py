"""Types of the document: comparison, text form, and validators.

A validator is a msgspec decoder, compiled once per type: the check happens in C while the bytes are read, `json` parts
are not even decoded, and errors name the path.
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

JSON = ir.Scalar(of="json")
STRING, INT, FLOAT, BOOL = (ir.Scalar(of=of) for of in ("string", "int", "float", "bool"))
_TEXTS = ("string", "time", "uuid", "bytes")
_SCALARS: dict[str, Any] = {
    "string": str,
    "int": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
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


def family(type_: ir.Type) -> str:
    """Return the JSON type of the values of a type, or `json` if it is not known."""
    match type_:
        case ir.Scalar(of=of):
            return "string" if of in _TEXTS else of
        case ir.EnumType():
            return "string"
        case ir.ListType():
            return "list"
        case _:
            return "map"


def named(type_: ir.Type, *, exact: bool = False) -> str:
    """Return a type as text. A known string is its own text. With `exact` the text can be parsed again."""
    optional = "?" if exact and type_.optional else ""
    match type_:
        case ir.Scalar(of=of):
            return of + optional
        case ir.ListType(items=items):
            return f"list<{named(items, exact=exact)}>{optional}"
        case ir.MapType(values=values):
            return f"map<string, {named(values, exact=exact)}>{optional}"
        case ir.EnumType(choices=choices):
            texts = ", ".join(quoted(choice) if exact else f'"{choice}"' for choice in choices)
            return texts if len(choices) == 1 and not exact else f"enum({texts}){optional}"
        case ir.RecordType(fields=fields):
            inside = [f"{name}: {named(of, exact=exact)}" for name, of in fields.items()]
            shown = "\n".join(["{", *inside, "}"]) if exact and inside else f"{{ {'  '.join(inside)} }}"
            return shown + optional


def quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def common(one: ir.Type, other: ir.Type) -> ir.Type:
    """Return the narrowest type that includes both types."""
    if one == other:
        return one
    if isinstance(one, ir.EnumType) and isinstance(other, ir.EnumType):
        return ir.EnumType(choices=tuple(dict.fromkeys(one.choices + other.choices)))
    families = {family(one), family(other)}
    if families == {"string"}:
        return STRING
    if families == {"int", "float"}:
        return FLOAT
    if isinstance(one, ir.ListType) and isinstance(other, ir.ListType):
        return ir.ListType(items=common(one.items, other.items))
    return JSON


def misfit(have: ir.Type, want: ir.Type) -> str | None:
    """Return why a value of type `have` can never be of type `want`, or None if it may.

    An optional value may be present and a string may be any choice of an enum, so these are only checked per message.
    """
    if "json" in (family(have), family(want)):
        return None
    match have, want:
        case ir.EnumType(), ir.EnumType():
            strange = [choice for choice in have.choices if choice not in want.choices]
            return f'"{strange[0]}" is not one of {named(want)}' if strange else None
        case ir.ListType(), ir.ListType():
            return misfit(have.items, want.items)
        case ir.MapType(), ir.MapType():
            return misfit(have.values, want.values)
        case ir.RecordType(), ir.MapType():
            return next(filter(None, (misfit(of, want.values) for of in have.fields.values())), None)
        case ir.MapType(), ir.RecordType():
            return next(filter(None, (misfit(have.values, of) for of in want.fields.values())), None)
        case ir.RecordType(), ir.RecordType():
            for name, of in want.fields.items():
                if name not in have.fields and not of.optional:
                    return f"`{name}` is missing"
                if name in have.fields and (why := misfit(have.fields[name], of)):
                    return f"`{name}`: {why}"
            return None
    if family(have) == family(want) or (family(have), family(want)) == ("int", "float"):
        return None
    return f"this is {named(have)}, not {named(want)}"


def compile_validator(record: ir.RecordType) -> Callable[[bytes], None]:
    """Return a function that checks a message's JSON. It raises PayloadInvalid with the path of the error."""
    decode = msgspec.json.Decoder(_native(record, json=msgspec.Raw)).decode

    def validate(payload: bytes) -> None:
        try:
            decode(payload)
        except msgspec.ValidationError as error:
            raise _explained(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PayloadInvalid(f"the message is not JSON: {error}", path="") from None

    return validate


def compile_input_validator(record: ir.RecordType) -> Callable[[dict[str, Any]], None]:
    """Return a function that checks the input of a command, which expressions built from a message."""
    wanted = _native(record, json=Any)

    def validate(value: dict[str, Any]) -> None:
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            raise _explained(error) from None

    return validate


def _native(type_: ir.Type, *, json: Any) -> Any:
    """Return the Python type from which msgspec compiles the validator."""
    native: Any = None
    match type_:
        case ir.Scalar(of="json"):
            return json
        case ir.Scalar(of=of):
            native = _SCALARS[of]
        case ir.ListType(items=items):
            native = list[_native(items, json=json)]  # type: ignore[misc]
        case ir.MapType(values=values):
            native = dict[str, _native(values, json=json)]  # type: ignore[misc]
        case ir.EnumType(choices=choices):
            native = Literal[choices]
        case ir.RecordType(fields=fields):
            native = _struct(fields, json=json)
    return native | None if type_.optional else native


def _struct(fields: dict[str, ir.Type], *, json: Any) -> Any:
    """Return a struct with generated field names: names in messages may be Python keywords."""
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
    """Translate msgspec's error to the language: `payload.incident.urgency: expected string, got int`."""
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
