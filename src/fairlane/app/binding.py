"""Bindings: what each parameter of a handler is given, by its annotation."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any

from fairlane.app.app import Handler
from fairlane.app.context import Context
from fairlane.errors import InvalidRequest
from fairlane.model.message import decoder_of

_DATA = object()
_CONTEXT = object()


class Binding:
    """A binding: how to call a handler. `decode` reads one payload."""

    def __init__(self, handler: Handler, provided: Mapping[Any, Any]) -> None:
        self.handler = handler
        self.is_async = is_coroutine(handler.function)
        self._slots: list[Any] = []
        data: Any = _DATA  # in case that no parameter takes it
        for name, annotation in _parameters(handler):
            if annotation is Context:
                self._slots.append(_CONTEXT)
            elif _hashable(annotation) and annotation in provided:
                self._slots.append(provided[annotation])
            elif data is _DATA:
                self._slots.append(_DATA)
                data = annotation
            else:
                raise InvalidRequest(
                    f"nothing provides parameter {name!r} of {handler.name}: annotate it with Context, or with "
                    "what a function under @app.provide returns"
                )
        self.reads = data is not _DATA
        self.decode = decoder_of(self._payload(data) if self.reads else Any)
        self._check_processes()

    def arguments(self, data: Any, context: Context) -> list[Any]:
        return [data if slot is _DATA else context if slot is _CONTEXT else slot for slot in self._slots]

    def _payload(self, annotation: Any) -> Any:
        if self.handler.kind != "batch" or annotation is Any:
            return annotation
        if annotation is list:
            return Any
        if typing.get_origin(annotation) is not list:
            raise InvalidRequest(f"the first parameter of {self.handler.name} takes a batch: annotate it as a list")
        return typing.get_args(annotation)[0]

    def _check_processes(self) -> None:
        if not self.handler.processes:
            return
        if self.is_async:
            raise InvalidRequest(f"{self.handler.name} is a coroutine function: it cannot run in a process")
        if any(slot is not _DATA for slot in self._slots):
            raise InvalidRequest(f"{self.handler.name} runs in a process, where it can be given its payload only")


def is_coroutine(function: Any) -> bool:
    called = getattr(type(function), "__call__", None)  # noqa: B004  # looked at, not tested for
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def hints_of(function: Any) -> dict[str, Any]:
    """Annotations as types. InvalidRequest says which one cannot be read."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        name = getattr(function, "__qualname__", function)
        raise InvalidRequest(f"the annotations of {name} cannot be read: {error}") from None


def _parameters(handler: Handler) -> list[tuple[str, Any]]:
    hints = hints_of(handler.function)
    found = []
    for parameter in inspect.signature(handler.function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append((parameter.name, hints.get(parameter.name, Any)))
        elif parameter.kind == parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise InvalidRequest(f"parameter {parameter.name!r} of {handler.name} can only be given by name")
    return found


def _hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True
