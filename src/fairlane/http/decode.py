"""Bodies and queries of requests as values; InvalidRequest says what does not fit."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from fairlane.errors import InvalidRequest
from fairlane.http.unknown import explained
from fairlane.wire.base import convert, decoder


def decode(body: bytes, type: Any, *, default: Any = msgspec.UNSET) -> Any:
    """The body as `type`. An empty body is `default` where there is one."""
    if not body:
        if default is msgspec.UNSET:
            raise InvalidRequest("the request needs a JSON body")
        return default
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
        raise InvalidRequest(f"the body does not fit: {explained(error, type)}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def read(query: dict[str, str], type: Any) -> Any:
    """The parameters as the struct that a route declares; an empty value counts as not given."""
    try:
        return convert({name: value for name, value in query.items() if value}, type)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"a query parameter does not fit: {error}") from None


_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_type_of = cache(inspect.type_info)
_NULL = msgspec.Raw(b"null")


def without_nulls(body: bytes, type: Any, error: Exception) -> bytes:
    """The body without nulls where the field may be left out: published clients send it so. All else stays byte by byte
    as it was. Only a body that does not fit is looked at, and no list is walked, so that the others pay nothing for it.
    Raises `error` if it is no object."""
    try:
        return bytes(_thinned(msgspec.Raw(body), _type_of(type)))
    except msgspec.DecodeError:
        raise error from None


def _thinned(value: msgspec.Raw, kind: inspect.Type) -> msgspec.Raw:
    if not isinstance(kind, inspect.StructType) or value == _NULL:
        return value
    may_go = {field.encode_name for field in kind.fields if not field.required and not _takes_null(field.type)}
    kinds = {field.encode_name: _besides_null(field.type) for field in kind.fields}
    thinned = {
        name: _thinned(given, kinds.get(name, inspect.AnyType()))
        for name, given in _fields_of(value).items()
        if given != _NULL or name not in may_go
    }
    return msgspec.Raw(msgspec.json.encode(thinned))


def _takes_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return kind.includes_none
    return isinstance(kind, inspect.RawType | inspect.AnyType)


def _besides_null(kind: inspect.Type) -> inspect.Type:
    some = (
        [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        if isinstance(kind, inspect.UnionType)
        else [kind]
    )
    return some[0] if len(some) == 1 else kind
