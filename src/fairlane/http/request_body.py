"""Decoding of request bodies and queries. InvalidRequest says what is wrong, and what was probably meant.

Unknown names are refused. Parameters that published clients send and this broker does not use are ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from fairlane.errors import InvalidRequest
from fairlane.model.limits import BATCH_ITEMS_MAX, JSON_DEPTH_MAX
from fairlane.model.nesting import depth_steps
from fairlane.spec.text.source import suggestion
from fairlane.wire.base import convert, decoder

IGNORED_PARAMETERS: Final[set[str]] = set()
"""Query parameters that every route ignores because published clients send them."""
_MEANT: Final = {
    "data": "payload",
    "body": "payload",
    "message": "payload",
    "group": "consumerGroup",
    "consumer": "consumerGroup",
    "delay": "delayMs",
    "lease": "leaseId",
    "leaseTime": "leaseSeconds",
    "id": "transactionId",
}
"""Common wrong names that are spelled quite differently from the right one."""
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?", re.DOTALL)
_PARAMETER: Final = re.compile(r"(.*) - at `\$\.(\w+)`", re.DOTALL)
_STEP: Final = re.compile(r"\.([A-Za-z_]+)|\[[0-9.]+\]")
SHALLOW_BYTES = 2 * JSON_DEPTH_MAX
"""Values up to this size cannot be nested too deeply."""
_AT_ONCE_BYTES = 128 * 1024
COUNTED_BYTES: Final = 128 * 1024
"""Bodies up to this size are decoded without counting list elements first. Decoding them is always fast."""

_BRACKETS_COUNTED_BYTES = 64 * 1024
"""Values above this size are checked in steps, which lets other requests run in between."""

Nested = tuple[str, int, msgspec.Raw]
"""The name of a list in the request, an index into it, and the value there."""


def decode(body: bytes, type: Any, *, default: Any = msgspec.UNSET) -> Any:
    """Decode a body as `type`. Returns `default` for an empty body, if given. Raises InvalidRequest."""
    if not body:
        if default is msgspec.UNSET:
            raise InvalidRequest("the request needs a JSON body")
        return default
    if len(body) > COUNTED_BYTES:
        check_counts(body, type)
    try:
        if not body.isascii():
            body.decode()
        try:
            return decoder(type).decode(body)
        except msgspec.ValidationError as error:
            return decoder(type).decode(without_nulls(body, type, error))
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not valid UTF-8 at byte {error.start}") from None
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body does not fit: {explain(error, type)}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def check_counts(body: bytes, type: Any) -> None:
    """Raise InvalidRequest if a list of the body is too long.

    Counting is much faster than decoding the elements, which blocks the event loop.
    """
    if body.count(b"{") <= BATCH_ITEMS_MAX or not (most := _longest(type)):
        return
    try:
        counted = _counter(type).decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return  # decoding it reports what is wrong
    for name, limit in most.items():
        if (count := len(getattr(counted, name))) > limit:
            raise InvalidRequest(f"{name} has {count} elements, and may have {limit}")


@cache
def _longest(type: Any) -> dict[str, int]:
    """Return how many elements the lists of objects in a body of this type may have, by name."""
    kind = _type_of(type)
    fields = kind.fields if isinstance(kind, inspect.StructType) else ()
    lists = {field.encode_name: field.type for field in fields if isinstance(field.type, inspect.ListType)}
    return {
        name: BATCH_ITEMS_MAX if one.max_length is None else one.max_length
        for name, one in lists.items()
        if isinstance(one.item_type, inspect.StructType)
    }


@cache
def _counter(type: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of the lists of objects in a body, which keeps nothing of the objects."""
    element = msgspec.defstruct("Element", [], gc=False)
    fields: list[Any] = [
        (name, list[element], msgspec.field(default_factory=list))  # type: ignore[valid-type]
        for name in _longest(type)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Counted", fields))


def read_query(query: dict[str, str], type: Any) -> Any:
    """Return the parameters as the struct that a route declares; an empty value counts as not given."""
    for name, value in query.items():
        if "\0" in value:
            raise InvalidRequest(f"{name:.40} must not contain a NUL character")
    try:
        return convert({name: value for name, value in query.items() if value}, type)
    except msgspec.ValidationError as error:
        raise InvalidRequest(_explain_parameter(str(error), query, type)) from None


def _explain_parameter(error: str, query: dict[str, str], type: Any) -> str:
    """Describe a query parameter that msgspec refused."""
    match = _PARAMETER.fullmatch(error)
    if match is None:
        return f"a query parameter does not fit: {error}"
    why, name = match.groups()
    kinds = {field.encode_name: _non_null(field.type) for field in inspect.type_info(type).fields}  # type: ignore[attr-defined]
    if isinstance(kind := kinds.get(name), inspect.LiteralType):
        why = f"expected one of {', '.join(f'`{choice}`' for choice in kind.values if choice)}"
    return f"the parameter {name} is {query.get(name, '')!r:.80}: {why}"


_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_type_of = cache(inspect.type_info)
_NULL = msgspec.Raw(b"null")


def without_nulls(body: bytes, type: Any, error: Exception) -> bytes:
    """Return the body without nulls for optional fields, which published clients send. The rest stays byte for byte.

    Called only for bodies that failed to decode, and walks no lists. Raises `error` if the body is not an object.
    """
    try:
        return bytes(_drop_nulls(msgspec.Raw(body), _type_of(type)))
    except msgspec.DecodeError:
        raise error from None


def _drop_nulls(value: msgspec.Raw, kind: inspect.Type) -> msgspec.Raw:
    if not isinstance(kind, inspect.StructType) or value == _NULL:
        return value
    may_go = {field.encode_name for field in kind.fields if not field.required and not _takes_null(field.type)}
    kinds = {field.encode_name: _non_null(field.type) for field in kind.fields}
    fields = {
        name: _drop_nulls(given, kinds.get(name, inspect.AnyType()))
        for name, given in _fields_of(value).items()
        if given != _NULL or name not in may_go
    }
    return msgspec.Raw(msgspec.json.encode(fields))


def _takes_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return kind.includes_none
    return isinstance(kind, inspect.RawType | inspect.AnyType)


def _non_null(kind: inspect.Type) -> inspect.Type:
    some = (
        [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        if isinstance(kind, inspect.UnionType)
        else [kind]
    )
    return some[0] if len(some) == 1 else kind


def hint(name: str, known: Collection[str]) -> str:
    """Return a hint for an unknown name, such as "did you mean `payload`?"."""
    meant = _MEANT.get(name) or _MEANT.get(_normalised(name))
    if meant in known:
        return f"did you mean `{meant}`?"
    same = [one for one in known if _normalised(one) == _normalised(name)]
    return f"did you mean `{same[0]}`?" if same else suggestion(name, known)


def _normalised(name: str) -> str:
    """Return a name without case and separators, so that leaseTime, lease_time and lease-time are equal."""
    return name.replace("_", "").replace("-", "").lower()


def check_parameters(given: dict[str, str], known: Collection[str]) -> None:
    """Raise InvalidRequest for a query parameter that a route does not take."""
    for name in given:
        if name not in known and name not in IGNORED_PARAMETERS:
            raise InvalidRequest(
                f"there is no query parameter {name!r:.80} here; {hint(name, known) or 'it takes none'}"
            )


@cache
def lists_of(kind: Any) -> frozenset[str]:
    """Return the names of the fields of a struct that are lists."""
    fields = msgspec.structs.fields(kind)
    return frozenset(
        one.encode_name
        for one in fields
        if isinstance(_without_metadata(inspect.type_info(one.type)), inspect.ListType)
    )


def _without_metadata(found: inspect.Type) -> inspect.Type:
    return found.type if isinstance(found, inspect.Metadata) else found


def explain(error: msgspec.ValidationError, type: Any) -> str:
    """Return what is wrong with a body, with a hint for an unknown field."""
    found = _UNKNOWN.fullmatch(str(error))
    if found is None:
        return str(error)
    name, path = found[1], found[2] or ""
    where = f" of {path.removeprefix('.')}" if path else ""
    return f"there is no field {name!r:.80}{where}; {hint(name, _fields(_type_of(type), path))}"


def _fields(kind: inspect.Type, path: str) -> list[str]:
    for step in _STEP.finditer(path):
        kind = _inside(kind, step[1])
    kind = _non_null_of(kind)
    return [field.encode_name for field in kind.fields] if isinstance(kind, inspect.StructType) else []


def _inside(kind: inspect.Type, field: str | None) -> inspect.Type:
    kind = _non_null_of(kind)
    if isinstance(kind, inspect.StructType) and field is not None:
        return next((one.type for one in kind.fields if one.encode_name == field), inspect.AnyType())
    if isinstance(kind, inspect.ListType) and field is None:
        return kind.item_type
    return inspect.AnyType()


def _non_null_of(kind: inspect.Type) -> inspect.Type:
    """Return the first type of a union that is not null, or `kind` itself."""
    if isinstance(kind, inspect.UnionType):
        return next((one for one in kind.types if not isinstance(one, inspect.NoneType)), kind)
    return kind


def is_shallow(value: msgspec.Raw) -> bool:
    """Return True if a value is too short, or has too few brackets, to be nested too deeply."""
    if len(value) <= SHALLOW_BYTES:
        return True
    if len(value) > _BRACKETS_COUNTED_BYTES:
        return False
    text = bytes(value)
    return text.count(b"{") + text.count(b"[") <= JSON_DEPTH_MAX


async def check_depths(values: Sequence[Nested]) -> None:
    """Raise InvalidRequest for the first value that is nested too deeply."""
    size = 0
    for where, index, value in values:
        try:
            for looked_at in depth_steps(bytes(value)):
                size += looked_at
                if size > _AT_ONCE_BYTES:
                    size = 0
                    await asyncio.sleep(0)
        except InvalidRequest as error:
            raise InvalidRequest(f"{where}[{index}]: {error}") from None
