"""Nulls in a body, which are as good as no field, where the field may be left out: published clients send it so.

Only a body that does not fit is looked at, so that the others pay nothing for it; and no list is walked, so that a long
one costs nothing either.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_type_of = cache(inspect.type_info)
_NULL = msgspec.Raw(b"null")


def without_nulls(body: bytes, type: Any) -> bytes:
    """The body without such fields; all else stays byte by byte as it was. Raises msgspec.DecodeError if it is no
    object."""
    return bytes(_thinned(msgspec.Raw(body), _type_of(type)))


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
