"""Providers: values for handlers besides their messages, made when a worker starts and ended when it stops."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from fairlane.app.binding import hints_of
from fairlane.errors import InvalidRequest


async def provide(providers: Sequence[Callable[..., Any]], stack: AsyncExitStack) -> dict[Any, Any]:
    """What each makes, by type. A provider may take what those before it made; the stack ends what they began."""
    made: dict[Any, Any] = {}
    for provider in providers:
        hints = hints_of(provider)
        kind = _kind(provider, hints.pop("return", None))
        arguments = [_given(provider, name, hints, made) for name in inspect.signature(provider).parameters]
        if inspect.isasyncgenfunction(provider):
            made[kind] = await stack.enter_async_context(asynccontextmanager(provider)(*arguments))
        elif inspect.isgeneratorfunction(provider):
            made[kind] = stack.enter_context(contextmanager(provider)(*arguments))
        else:
            value = provider(*arguments)
            made[kind] = await value if inspect.isawaitable(value) else value
    return made


def _kind(provider: Callable[..., Any], returned: Any) -> Any:
    if inspect.isasyncgenfunction(provider) or inspect.isgeneratorfunction(provider):
        returned = (typing.get_args(returned) or (None,))[0]
    if returned is None:
        raise InvalidRequest(f"{_name(provider)} must say by its return annotation what it provides")
    return returned


def _given(provider: Callable[..., Any], name: str, hints: dict[str, Any], made: dict[Any, Any]) -> Any:
    if hints.get(name) not in made:
        raise InvalidRequest(f"nothing registered before {_name(provider)} provides its parameter {name!r}")
    return made[hints[name]]


def _name(provider: Callable[..., Any]) -> str:
    return str(getattr(provider, "__qualname__", provider))
