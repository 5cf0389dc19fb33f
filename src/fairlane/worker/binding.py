"""Bindings: the value of each parameter of a handler, chosen by its annotation.

The value is the payload, the context, or an object that a provider creates when the worker starts.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from fairlane.client.consume import is_coroutine
from fairlane.errors import InvalidRequest
from fairlane.model.decoding import decode_any
from fairlane.worker.app import App, Handler, HandlerGroup
from fairlane.worker.context import Context
from fairlane.worker.parameters import hints_of, name_of, parameters, payload_decoder

_DATA = object()
_CONTEXT = object()


class Binding:
    """A handler with the values for its parameters. `decode` decodes one payload."""

    def __init__(self, handler: Handler, provided: Mapping[Any, Any]) -> None:
        self.handler = handler
        self.is_async = is_coroutine(handler.function)
        self._slots: list[Any] = []
        data: Any = _DATA  # if no parameter takes the payload
        for name, annotation in parameters(handler.function):
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
        self.decode = (
            payload_decoder(handler.function, data, batch=handler.kind == "batch") if self.reads else decode_any
        )
        self._check_processes()

    def arguments(self, data: Any, context: Context) -> list[Any]:
        return [data if slot is _DATA else context if slot is _CONTEXT else slot for slot in self._slots]

    def _check_processes(self) -> None:
        if not self.handler.processes:
            return
        if self.is_async:
            raise InvalidRequest(f"{self.handler.name} is a coroutine function: it cannot run in a process")
        if any(slot is not _DATA for slot in self._slots):
            raise InvalidRequest(f"{self.handler.name} runs in a process, so it can only take its payload")


def _hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def check_parameters(app: App, groups: Sequence[HandlerGroup]) -> None:
    """Raise InvalidRequest if nothing provides a parameter of a handler or provider. Runs no provider."""
    provided: dict[Any, Any] = {}
    for provider in app.providers:
        kind, _ = _provision(provider, provided)
        provided[kind] = None
    for group in groups:
        for handler in group.handlers.values():
            Binding(handler, provided)


async def provide(providers: Sequence[Callable[..., Any]], stack: AsyncExitStack) -> dict[Any, Any]:
    """Run the providers and return the objects that they provide, by type.

    A provider may use objects of earlier ones. The stack closes generators at the end.
    """
    made: dict[Any, Any] = {}
    for provider in providers:
        kind, arguments = _provision(provider, made)
        if inspect.isasyncgenfunction(provider):
            made[kind] = await stack.enter_async_context(asynccontextmanager(provider)(*arguments))
        elif inspect.isgeneratorfunction(provider):
            made[kind] = stack.enter_context(contextmanager(provider)(*arguments))
        else:
            value = provider(*arguments)
            made[kind] = await value if inspect.isawaitable(value) else value
    return made


def _provision(provider: Callable[..., Any], made: Mapping[Any, Any]) -> tuple[Any, list[Any]]:
    """Return the type that a provider provides, and its arguments taken from `made`."""
    hints = hints_of(provider)
    kind = _kind(provider, hints.pop("return", None))
    return kind, [_given(provider, name, hints, made) for name in inspect.signature(provider).parameters]


def _kind(provider: Callable[..., Any], returned: Any) -> Any:
    if inspect.isasyncgenfunction(provider) or inspect.isgeneratorfunction(provider):
        returned = (typing.get_args(returned) or (None,))[0]
    if returned is None:
        raise InvalidRequest(f"{name_of(provider)} needs a return annotation with the type that it provides")
    return returned


def _given(provider: Callable[..., Any], name: str, hints: dict[str, Any], made: Mapping[Any, Any]) -> Any:
    if hints.get(name) not in made:
        raise InvalidRequest(f"nothing registered before {name_of(provider)} provides its parameter {name!r}")
    return made[hints[name]]
