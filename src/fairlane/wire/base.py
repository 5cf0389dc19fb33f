"""Bases of the shapes on the wire, and how they are read and written. camelCase is inherited from here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args

import msgspec

from fairlane.model.moment import Moment, moment_or_none

T = TypeVar("T", bound=msgspec.Struct)

Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
NULL = msgspec.Raw(b"null")


class _ByName(msgspec.StructMeta):
    """Fields are given by their names, in subclasses too."""

    def __new__(cls, name: str, bases: tuple[type, ...], fields: dict[str, Any], **config: Any) -> Any:
        return super().__new__(cls, name, bases, fields, **{"kw_only": True, **config})


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Body(msgspec.Struct, metaclass=_ByName, rename="camel", forbid_unknown_fields=True):
    """A shape that is sent to a broker. A field that it does not know is refused."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Answer(msgspec.Struct, metaclass=_ByName, frozen=True, rename="camel"):
    """A shape that a broker sends. A client passes over fields that it does not know: the broker may be newer."""


class ListQuery(Body):
    """A part of a list. Each list says what it can be sorted by."""

    search: str = ""
    """Only those in whose names this is, in whatever case."""
    sort: str = "name"
    order: Literal["asc", "desc"] | None = None
    """Left out: names upwards, numbers and times downwards, so that what is most, oldest or newest comes first."""
    limit: Limit | None = None
    """Left out: all there are."""
    offset: Offset = 0


class Pagination(Answer):
    limit: int
    offset: int


def made(kind: type[T], /, *sources: object, **given: Any) -> T:
    """A shape of what is given and, for the rest, of what the sources have by the same names: times become moments, and
    ids text."""
    for name, convert in _conversions(kind):
        if name not in given:
            source = next((one for one in sources if hasattr(one, name)), None)
            if source is not None:
                value = getattr(source, name)
                given[name] = value if convert is None else convert(value)
    return kind(**given)


@cache
def _conversions(kind: type[msgspec.Struct]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    return [
        (one.name, moment_or_none if Moment in (one.type, *get_args(one.type)) else str if one.type is str else None)
        for one in msgspec.structs.fields(kind)
    ]


def _write(value: Any) -> Any:
    if isinstance(value, Moment):
        return value.isoformat()
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


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
    """The fields of a query as a struct; msgspec.ValidationError says what does not fit."""
    return msgspec.convert(fields, kind, strict=False, dec_hook=_read)
