"""Parameters of a command, declared in the signature of its function.

    def greet(
        name: Annotated[str, arg("NAME", "Person to greet.")],
        times: Annotated[int, opt("Number of greetings.", "--times", "-n")] = 1,
    ) -> None: ...

The type may be `str`, `int`, `float`, `Path`, `bool` for a flag, a `Literal` for a choice, or `tuple[str, ...]` for a
parameter that can be repeated. `click` parses the command line.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import click

_REQUIRED: Any = inspect.Parameter.empty


class ParameterDeclaration(NamedTuple):
    """The metadata of an `Annotated` parameter: its click class, its option names and further click settings."""

    kind: type[click.Parameter]
    names: tuple[str, ...]
    settings: dict[str, Any]


def arg(metavar: str | None, help: str, **settings: Any) -> Any:
    """Declare a positional argument. Without a `metavar`, help shows the choices."""
    return ParameterDeclaration(click.Argument, (), {"metavar": metavar, "help": help} | settings)


def opt(help: str, *names: str, **settings: Any) -> Any:
    """Declare an option, named like the parameter by default. "--ack/--no-ack" names both states of a flag."""
    return ParameterDeclaration(
        click.Option, names, {"help": help, "show_envvar": True, "show_default": True} | settings
    )


def parameters_of(function: Callable[..., Any], *, exclude: Iterable[str] = ()) -> list[click.Parameter]:
    """Return the click parameters that the signature of `function` declares."""
    hints = get_type_hints(function, include_extras=True)
    declared = inspect.signature(function).parameters.values()
    return [parameter(one.name, hints[one.name], one.default) for one in declared if one.name not in exclude]


def parameter(name: str, annotation: Any, default: Any = _REQUIRED) -> click.Parameter:
    """Return the click parameter for one annotated parameter of a function."""
    kind, names, settings = annotation.__metadata__[0]
    value_type = annotation.__origin__
    if NoneType in get_args(value_type):
        value_type = next(one for one in get_args(value_type) if one is not NoneType)
    repeated = get_origin(value_type) is tuple
    value_type = get_args(value_type)[0] if repeated else value_type
    required = default is _REQUIRED
    settings = {"type": _click_type(value_type), "required": required} | settings
    if not required and not repeated:
        settings["default"] = default
    if kind is click.Argument:
        settings["nargs"] = -1 if repeated else 1
        if settings["metavar"]:
            settings["metavar"] = _argument_metavar(settings["metavar"], required=required, repeated=repeated)
        return click.Argument([name], **settings)
    if default == "":
        settings["show_default"] = False
    spelled = name.replace("_", "-")
    if value_type is bool:
        names = names or (f"--{spelled}/--no-{spelled}",)
        settings = settings | {"is_flag": True, "type": None}
    return click.Option([name, *(names or (f"--{spelled}",))], multiple=repeated, **settings)


def _argument_metavar(metavar: str, *, required: bool, repeated: bool) -> str:
    return f"{metavar if required else f'[{metavar}]'}{'...' if repeated else ''}"


def _click_type(value_type: Any) -> click.ParamType[Any] | None:
    if get_origin(value_type) is Literal:
        return click.Choice(get_args(value_type))
    if value_type is Path:
        return click.Path(path_type=Path)
    return {str: _Utf8Text(), int: click.INT, float: _Number()}.get(value_type)


class _Utf8Text(click.types.StringParamType):
    """A string that can be sent as UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r:.80} is not valid UTF-8.", param, ctx)
        return text


class _Number(click.types.FloatParamType):
    """A finite number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r:.80} is not a finite number.", param, ctx)
        return number
