"""Commands: a function each, whose signature says what stands on the command line, and the words read by it.

    def greet(name: Annotated[str, arg("NAME", "Of whom.")], times: Annotated[int, opt("How often.")] = 1) -> None:
        '''Greet somebody.'''

A parameter is `str`, `int`, `float`, `Path`, `Literal` for one of some words, `bool` for a flag, or a list for what may
be repeated. The standard library's parser would do, at the price of more lines than this and of a worse word for each
mistake; those of others are imported for longer than most commands run."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from fairlane.errors import InvalidRequest

REQUIRED: Any = inspect.Parameter.empty
_WANTED = {int: "a whole number", float: "a number"}


class Declared(NamedTuple):
    """The declaration of a parameter, as `Annotated` has it: an option by its names, or without any an argument."""

    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    envvar: str | None = None
    least: int | None = None
    most: int | None = None
    shown: str | None = None
    """Told as the default instead of it; nothing is with ""."""
    group: str = "Options"
    """The title that it stands under in the help."""
    hidden: bool = False
    is_option: bool = True


def arg(metavar: str, help: str) -> Any:
    """An argument, given by its place."""
    return Declared(help, metavar=metavar, is_option=False)


def opt(help: str, *names: str, **more: Any) -> Any:
    """An option, by default with the name of its parameter; "--ack/--no-ack" names both ways of a flag. `more` is what
    `Declared` has."""
    return Declared(help, names, **more)


class Parameter:
    """A parameter of a command."""

    def __init__(self, name: str, annotation: Any, default: Any = REQUIRED) -> None:
        self.name, self.default = name, default
        self.declared: Declared = annotation.__metadata__[0]
        kind = annotation.__origin__
        if NoneType in get_args(kind):
            kind = next(one for one in get_args(kind) if one is not NoneType)
        self.many = get_origin(kind) is list
        kind = get_args(kind)[0] if self.many else kind
        self.choices: tuple[str, ...] = get_args(kind) if get_origin(kind) is Literal else ()
        self.kind: Any = str if self.choices else kind
        spelled = name.replace("_", "-")
        usual = f"--{spelled}/--no-{spelled}" if kind is bool else f"--{spelled}"
        pairs = [one.partition("/") for one in self.declared.names or (usual,)] if self.declared.is_option else []
        self.names = [yes for yes, _, _ in pairs]
        self.negations = [no for _, _, no in pairs if no]

    @property
    def metavar(self) -> str:
        """What stands for its value in a usage."""
        return self.declared.metavar or "|".join(self.choices) or {str: "TEXT", Path: "FILE"}.get(self.kind, "NUMBER")

    @property
    def label(self) -> str:
        """What a sentence about it calls it."""
        return max(self.names, key=len, default=self.declared.metavar or self.name.upper())

    def read(self, text: str) -> Any:
        """The value that a text stands for. InvalidRequest says what it must be."""
        if self.choices:
            wanted = ", ".join(self.choices[:-1]) + f" or {self.choices[-1]}"
            return text if text in self.choices else self._refuse(text, wanted)
        if self.kind in _WANTED:
            return self._number(text)
        try:
            text.encode()
        except UnicodeEncodeError:
            if self.kind is not Path:
                self._refuse(text, "UTF-8")
        return self.kind(text)

    def _number(self, text: str) -> int | float:
        least, most = self.declared.least, self.declared.most
        wanted = f"{_WANTED[self.kind]} of at least {least}" if least is not None else _WANTED[self.kind]
        wanted = f"{least} to {most}" if most is not None else wanted
        try:
            number: int | float = self.kind(text)
        except ValueError:
            self._refuse(text, wanted)
        if not math.isfinite(number) or (least is not None and number < least) or (most is not None and number > most):
            self._refuse(text, wanted)
        return number

    def _refuse(self, text: str, wanted: str) -> NoReturn:
        raise InvalidRequest(f"{self.label} is {text!r:.80}; it must be {wanted}")

    def absent(self) -> Any:
        """The value where none is given: that of its environment variable, or the default."""
        variable = self.declared.envvar
        return self.read(os.environ[variable]) if variable and os.environ.get(variable) else self.default


def parameters_of(function: Callable[..., Any], *, besides: Iterable[str] = ()) -> list[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters.values()
    return [Parameter(one.name, hints[one.name], one.default) for one in given if one.name not in besides]


class Command:
    """A command by its name, `queue list`. Its parameters are made when they are asked for: most are not."""

    def __init__(
        self, name: str, run: Callable[..., None], help: str | None, parameters: Callable[[], list[Parameter]]
    ) -> None:
        self.name, self.run = name, run
        self.help = inspect.cleandoc(help or "")
        self._parameters = parameters

    @cached_property
    def parameters(self) -> list[Parameter]:
        return self._parameters()

    @property
    def arguments(self) -> list[Parameter]:
        return [one for one in self.parameters if not one.declared.is_option]

    @property
    def options(self) -> list[Parameter]:
        return [one for one in self.parameters if one.declared.is_option]

    def __call__(self, words: Sequence[str], known: dict[str, Any]) -> None:
        """Run it with what the words give; `known` was given before them."""
        values = self.read(words)
        for one in self.parameters:
            if one.name not in values:
                values[one.name] = known[one.name] if one.name in known else one.absent()
            if values[one.name] is REQUIRED:
                self._refuse(f"{one.label} is missing")
        self.run(**values)

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """The values that words give, options and arguments in any order; behind `--` all are arguments."""
        values: dict[str, Any] = {}
        rest, arguments = iter(words), list[str]()
        for word in rest:
            if word == "--":
                arguments += rest
            elif is_option(word):
                self.take(word, rest, values)
            else:
                arguments.append(word)
        for one in self.arguments:
            if arguments and one.many:
                values[one.name], arguments = [one.read(word) for word in arguments], []
            elif arguments:
                values[one.name] = one.read(arguments.pop(0))
        if arguments:
            self._refuse(f"{arguments[0]!r:.80} is one argument too many")
        return values

    def take(self, word: str, rest: Iterator[str], values: dict[str, Any]) -> None:
        """Read an option from its word, and from the next one if its value is there."""
        long = word.startswith("--")
        name, attached, text = word.partition("=") if long else (word[:2], word[2:], word[2:])
        one = next((one for one in self.options if name in one.names + one.negations), None)
        if one is None:
            from fairlane.spec.text.source import suggestion

            known = [name for one in self.options if not one.declared.hidden for name in one.names + one.negations]
            self._refuse(f"there is no option {name:.80}; {suggestion(name, known)}")
        if one.kind is bool:
            if long and attached:
                self._refuse(f"{name} takes no value")
            values[one.name] = name in one.names
            if attached:
                self.take(f"-{text}", rest, values)
            return
        if not attached:
            text = next(rest, "--")
            if text == "--" or any(text in other.names for other in self.options):
                self._refuse(f"{name} needs a value")
        values[one.name] = [*values.get(one.name, []), one.read(text)] if one.many else one.read(text)

    def _refuse(self, text: str) -> NoReturn:
        how = f"`fairlane {self.name} --help`".replace("  ", " ")
        raise InvalidRequest(f"{text}{'' if text.endswith('?') else ';'} {how} tells how it is used")


def is_option(word: str) -> bool:
    """Whether a word is an option: not a dash alone, which stands for the input, nor a number."""
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()


class Noun:
    """A noun and its verbs. What is none of them is given to the verb `otherwise`, if there is one."""

    def __init__(self, name: str = "", *, otherwise: str | None = None) -> None:
        self.name, self.otherwise = name, otherwise
        self.verbs: dict[str, Command] = {}

    def add(
        self, verb: str, run: Callable[..., None], help: str | None, parameters: Callable[[], list[Parameter]]
    ) -> None:
        self.verbs[verb] = Command(f"{self.name} {verb}".strip(), run, help, parameters)

    def command(self, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Make a command of a function that asks no broker, or asks it in its own way."""

        def decorate(function: Callable[..., None]) -> Callable[..., None]:
            self.add(name or function.__name__, function, function.__doc__, lambda: parameters_of(function))
            return function

        return decorate
