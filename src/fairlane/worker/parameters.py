"""Parameters of handlers: their annotations, and how the payload is decoded for one of them."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from fairlane.errors import InvalidRequest
from fairlane.model.decoding import Decode, decoder_of
from fairlane.worker.context import Context


def hints_of(function: Any) -> dict[str, Any]:
    """Return the annotations as types. Raises InvalidRequest if one cannot be resolved."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"the annotations of {name_of(function)} cannot be read: {error}") from None


def name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", function))


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Return the positional parameters, each with its type. Raises InvalidRequest for a required keyword-only one."""
    hints = hints_of(function)
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append((parameter.name, hints.get(parameter.name, Any)))
        elif parameter.kind == parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise InvalidRequest(
                f"parameter {parameter.name!r} of {name_of(function)} is keyword-only; make it positional"
            )
    return found


def payload_decoder(function: Callable[..., Any], annotation: Any, *, batch: bool) -> Decode:
    """Return the decoder of one payload. Raises InvalidRequest if the annotation cannot be decoded."""
    if batch and annotation is not Any:
        if annotation is not list and typing.get_origin(annotation) is not list:
            raise InvalidRequest(f"the first parameter of {name_of(function)} takes a batch: annotate it as a list")
        [annotation] = typing.get_args(annotation) or [Any]
    try:
        return decoder_of(annotation)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name_of(function)}: {error}") from None


def check_payload_type(function: Callable[..., Any], *, batch: bool) -> None:
    """Raise InvalidRequest if the function's first parameter surely takes the payload and cannot be decoded.

    A class passes here, because a provider that is registered later may return it. `Binding` checks it again.
    """
    try:
        annotations = [annotation for _, annotation in parameters(function) if annotation is not Context]
    except InvalidRequest:
        return  # it may refer to a name that is defined later; the worker checks it again
    if annotations and typing.get_origin(annotations[0]) in _NEVER_PROVIDED:
        payload_decoder(function, annotations[0], batch=batch)


_NEVER_PROVIDED = (list, dict, tuple, set, frozenset, typing.Union, types.UnionType)
