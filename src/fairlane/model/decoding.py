"""Decoding of payloads and results as the type that a caller names, models of pydantic included.

A model is any class with `model_validate_json`, so that pydantic itself is never imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from fairlane.errors import InvalidRequest

Decode = Callable[[bytes | msgspec.Raw], Any]
"""Function that decodes payload bytes as the type of a pop."""
decode_any: Decode = msgspec.json.Decoder().decode
_MISTAKES_MAX = 3
"""Mistakes of one model that an error names."""


class Misfit(ValueError):
    """Data that does not fit a model: the mistakes, each with its path inside the model."""

    def __init__(self, mistakes: list[tuple[str, str]]) -> None:
        super().__init__("the data does not fit a model")
        self.mistakes = mistakes

    def at(self, path: str) -> msgspec.ValidationError:
        """Return the error for data at `path`, as msgspec words it."""
        texts = [f"{text} - at `{path}{inner}`" if path + inner != "$" else text for text, inner in self.mistakes]
        shown, more = texts[:_MISTAKES_MAX], len(texts) - _MISTAKES_MAX
        return msgspec.ValidationError("; ".join(shown) + (f"; and {more} more" if more > 0 else ""))


def decoder_of(type: Any) -> Decode:
    """Return a function that decodes payload bytes as `type`: any type that msgspec supports, or a model.

    Models may stand inside lists, dataclasses and structs. Raises InvalidRequest if no payload could be decoded.
    """
    try:
        return _cached(type)
    except TypeError:  # a type that cannot be hashed
        return _decoder(type)


def _decoder(type: Any) -> Decode:
    if type is Any or type is object:
        return decode_any
    if is_model(type):
        return _model_decoder(type)
    if not _has_custom(type):
        return msgspec.json.Decoder(type).decode
    decode = msgspec.json.Decoder(type, dec_hook=_read).decode

    def decode_nested(raw: bytes | msgspec.Raw) -> Any:
        try:
            return decode(raw)
        except msgspec.ValidationError as error:
            if isinstance(misfit := error.__cause__, Misfit):
                raise misfit.at(_path_of(error)) from None
            raise

    return decode_nested


_cached = lru_cache(maxsize=1_000)(_decoder)  # a pop names its type each time


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def _has_custom(kind: Any) -> bool:
    """Return True if there are models in a type. Raises InvalidRequest for a type that cannot be decoded."""
    found = False
    try:
        for custom in _custom_types(msgspec.inspect.type_info(kind)):
            if not is_model(custom):
                raise TypeError(f"{custom!r:.80} is neither a model nor a type that JSON can fill")
            found = True
    except (TypeError, NotImplementedError, NameError) as error:
        raise InvalidRequest(
            f"messages cannot be decoded as {kind!r:.80}: {error}; use a dataclass, a TypedDict, a msgspec.Struct, "
            "a pydantic model, or a RootModel for a union of models"
        ) from None
    return found


def _custom_types(info: Any) -> Iterator[Any]:
    """Yield the classes inside a type that msgspec itself cannot decode."""
    left, seen = [info], set[int]()
    while left:
        one = left.pop()
        if isinstance(one, msgspec.inspect.CustomType):
            yield one.cls
        elif isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field) and id(one) not in seen:
            seen.add(id(one))
            for name in one.__struct_fields__:
                inner = getattr(one, name)
                left += inner if isinstance(inner, tuple) else [inner]


def _model_decoder(model: Any) -> Decode:
    def decode(raw: bytes | msgspec.Raw) -> Any:
        try:
            return _validated(model, bytes(raw))
        except Misfit as misfit:
            raise misfit.at("$") from None

    return decode


def _read(kind: Any, value: Any) -> Any:
    """Decode a model inside another type: the hook of msgspec, which adds the path to the error."""
    return _validated(kind, msgspec.json.encode(value))


def _validated(model: Any, raw: bytes) -> Any:
    """Return the model. Raises Misfit with pydantic's own words, which do not quote the input."""
    try:
        return model.model_validate_json(raw)
    except ValueError as error:
        errors: Any = getattr(error, "errors", None)
        if errors is None:
            raise Misfit([(str(error), "")]) from None
        found: list[Mapping[str, Any]] = errors(include_url=False, include_context=False, include_input=False)
        raise Misfit([(str(one["msg"]), _steps(one["loc"])) for one in found]) from None


def _steps(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)


def _path_of(error: msgspec.ValidationError) -> str:
    """Return the path that msgspec appended to the error of a hook."""
    return str(error).rpartition(" - at `")[2].removesuffix("`") or "$"
