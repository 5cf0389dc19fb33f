"""Bases of the types on the wire, and their encoding. They inherit camelCase names from here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, dataclass_transform

import msgspec

from fairlane.model.moment import Moment
from fairlane.model.payload import model_json

Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
NULL = msgspec.Raw(b"null")


class _ByName(msgspec.StructMeta):
    """A metaclass that makes the fields of a struct and its subclasses keyword-only."""

    def __new__(cls, name: str, bases: tuple[type, ...], fields: dict[str, Any], **config: Any) -> Any:
        return super().__new__(cls, name, bases, fields, **{"kw_only": True, **config})


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Body(msgspec.Struct, metaclass=_ByName, rename="camel", forbid_unknown_fields=True):
    """A type that clients send. Unknown fields are refused."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Answer(msgspec.Struct, metaclass=_ByName, frozen=True, rename="camel"):
    """A type that brokers send. Clients ignore unknown fields, because the broker may be newer."""


class ListQuery(Body):
    """A page of a list. Each list has its own columns to sort by."""

    search: str = ""
    """Text that names must contain, in any case."""
    sort: str = "name"
    order: Literal["asc", "desc"] | None = None
    """Sort order. The default is ascending for names and descending for numbers and times."""
    limit: Limit | None = None
    """Size of the page. The default is the whole list."""
    offset: Offset = 0


class Pagination(Answer):
    limit: int
    offset: int


def _write(value: Any) -> Any:
    if isinstance(value, Moment):
        return value.isoformat()
    return model_json(value)


def _read(kind: Any, value: Any) -> Any:
    if kind is not Moment:
        raise NotImplementedError
    try:
        return Moment.parse(value)
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise msgspec.ValidationError(f"{value!r:.80} is not a time like 2026-01-31T12:00:00Z") from None


encode = msgspec.json.Encoder(enc_hook=_write).encode


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_read)


decoder: Callable[[Any], msgspec.json.Decoder[Any]] = _decoder


def convert(fields: dict[str, str], kind: Any) -> Any:
    """Convert the fields of a query to a struct. Raises msgspec.ValidationError if they do not fit."""
    return msgspec.convert(fields, kind, strict=False, dec_hook=_read)
