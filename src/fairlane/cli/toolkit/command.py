"""Commands, declared as functions.

    app = CommandGroup("queue")

    @client_command(app, columns=columns_of("queue partition"), empty="There are no leases.")
    async def leases(client: Client, queue: QueueName, limit: Limit = 100) -> Any:
        '''List live leases, the next to expire first.'''
        return await client.queues.leases(queue, limit=limit)

declares `fairlane queue leases QUEUE --limit N`, with `--server` and `--json` like every command that calls a broker.
The docstring is the help text. Its first sentence stands in the list of commands. `fairlane.cli.main` lists the modules
of all commands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from fairlane.cli.toolkit.output import echo, print_json, print_table, time_cell
from fairlane.cli.toolkit.parameters import arg as arg
from fairlane.cli.toolkit.parameters import opt as opt
from fairlane.cli.toolkit.parameters import parameter, parameters_of
from fairlane.errors import Forbidden, NotFound, Unavailable
from fairlane.model.names import DEFAULT_SERVER

if TYPE_CHECKING:
    from fairlane.client import Client as Client
else:
    Client = object  # imported by the commands that need it: a broker and `--help` do not

Columns: TypeAlias = dict[str, Callable[[Any], object]]
"""Functions that return the cell of a row, by column title."""
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
Function = TypeVar("Function", bound=Callable[..., None])
T = TypeVar("T")


def _given_server(context: click.Context, option: click.Parameter, value: str) -> str:
    """Prefer `fairlane --server URL COMMAND` to the environment and the default."""
    if context.get_parameter_source("server") is ParameterSource.COMMANDLINE:
        return value
    return context.find_root().params.get("server") or value


_SERVER = opt(
    "Broker URL. Separate several brokers of one store with commas.",
    *("--server", "-s"),
    metavar="URL",
    envvar="FAIRLANE_SERVER",
    callback=_given_server,
)
Server = Annotated[str, _SERVER]
AsJson = Annotated[bool, opt("Print JSON.", "--json")]
Yes = Annotated[bool, opt("Do not ask for confirmation.", "--yes", "-y")]
Limit = Annotated[int, opt("Maximum number of rows.", "--limit", "-n")]
QueueName = Annotated[str, arg("QUEUE", "Name of the queue.")]
RETRY_SECONDS = 0.3
"""Delay before a broker that did not answer is called again. Short, because a person waits."""


def server_and_json() -> list[click.Parameter]:
    """Return the options of every command that calls a broker."""
    return [parameter("server", Server, DEFAULT_SERVER), parameter("json", AsJson, False)]


class CommandGroup(click.Group):
    """A group of commands, such as `fairlane queue`. Other words go to the command `default`."""

    def __init__(self, name: str | None = None, *, default: str | None = None) -> None:
        super().__init__(name)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self._default and args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def add(self, name: str, run: Callable[..., None], help: str | None, params: Sequence[click.Parameter]) -> None:
        """Add a command."""
        self.add_command(new_command(click.Command, name, run, help, params))


def new_command(
    kind: type[click.Command], name: str, run: Callable[..., None], help: str | None, params: Sequence[click.Parameter]
) -> click.Command:
    """Return a command with the help text of a docstring, in which an indented paragraph is an example."""
    text = inspect.cleandoc(help or "")
    first_sentence = " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".") + "."
    verbatim = re.sub(r"\n\n(?= {4})", "\n\n\b\n", text)
    return kind(name, callback=run, help=verbatim, short_help=first_sentence, params=list(params))


def command(app: CommandGroup, name: str | None = None) -> Callable[[Function], Function]:
    """Turn a function into a command. The function calls no broker, or calls it in its own way."""

    def decorate(function: Function) -> Function:
        app.add(name or function.__name__, function, function.__doc__, parameters_of(function))
        return function

    return decorate


class Output(NamedTuple):
    """The output of a command: `value` for --json, a sentence or a function that prints for people, an exit code."""

    value: Any
    text: str | Callable[[], object]
    code: int = 0


def deleted(noun: str, name: str, existed: bool) -> Output:
    """Return the output of a command that deletes something by its name."""
    text = f"Deleted {noun} {name}." if existed else f"{noun.capitalize()} {name} does not exist."
    return Output({"name": name, "deleted": existed}, text, 0 if existed else 1)


def client_command(
    app: CommandGroup,
    name: str | None = None,
    *,
    columns: Columns | None = None,
    rows: str = "",
    empty: str = "",
    fields: Columns | None = None,
) -> Callable[[Handler], Handler]:
    """Turn a coroutine function that takes a client and options into a command with `--server` and `--json`.

    With `columns` the function returns a list, or a page whose attribute `rows` is a list. It is printed as a table, or
    as the sentence `empty` if it has no items. An empty list is refused if its queue does not exist. With `fields` the
    function returns one object, whose fields are printed. Otherwise it returns an `Output`, or takes `json` and prints
    the result itself.
    """

    def decorate(handler: Handler) -> Handler:
        takes_json = "json" in handler.__annotations__

        def listed(answer: Any) -> Sequence[Any]:
            found: Sequence[Any] = getattr(answer, rows) if rows else answer
            return found

        def run(server: str, json: bool, **options: Any) -> None:
            if takes_json:
                options["json"] = json

            async def ask(client: Client) -> Any:
                answer = await handler(client, **options)
                if columns is not None and not listed(answer) and options.get("queue"):
                    await check_queue(client, options["queue"])
                return answer

            answer = call_broker(server, ask)
            if columns is not None:
                print_output(Output(answer, lambda: print_rows(columns, listed(answer), empty=empty)), json)
            elif fields is not None:
                print_output(Output(answer, lambda: print_fields(fields, answer)), json)
            elif answer is not None:
                print_output(answer, json)

        params = [*parameters_of(handler, exclude=("client", "json")), *server_and_json()]
        app.add(name or handler.__name__, run, handler.__doc__, params)
        return handler

    return decorate


async def check_queue(client: Client, queue: str) -> None:
    """Raise NotFound if the queue does not exist, as far as the key may know."""
    try:
        await client.queues.show(queue)
    except Forbidden:
        return
    except NotFound:
        raise await missing_queue(client, queue) from None


async def missing_queue(client: Client, queue: str) -> NotFound:
    """Return the error for a queue that does not exist, with the name of a similar one."""
    import difflib

    close = difflib.get_close_matches(queue, [one.name for one in await client.queues.all()], n=1, cutoff=0.7)
    return NotFound(f"queue {queue!r} does not exist{f'; did you mean {close[0]!r}?' if close else ''}")


def print_output(answer: Output, json: bool) -> None:
    """Print the output of a command, and exit with its code if that is not 0."""
    if json:
        print_json(answer.value)
    elif isinstance(answer.text, str):
        echo(answer.text)
    else:
        answer.text()
    if answer.code:
        raise click.exceptions.Exit(answer.code)


def print_rows(columns: Columns, found: Sequence[Any], *, empty: str = "") -> None:
    """Print a table with a row for each item."""
    print_table(list(columns), [cells_of(columns, one) for one in found], empty=empty)


def print_fields(columns: Columns, one: Any) -> None:
    """Print a row for each field of an object that is not empty."""
    fields = zip(columns, cells_of(columns, one), strict=True)
    print_table(("", ""), [(title, cell) for title, cell in fields if cell not in (None, "")], empty="")


def cells_of(columns: Columns, one: Any) -> list[object]:
    return [cell(one) for cell in columns.values()]


def columns_of(fields: str, **computed: Callable[[Any], object]) -> Columns:
    """Return columns for these attributes, each `title` or `title=attribute`; `_` in a title stands for a space.

    A function of the row in `computed` replaces the attribute. Attributes named `at` or `..._at` are shown as times.
    """
    columns: Columns = {}
    for word in fields.split():
        title, _, field = word.partition("=")
        get = computed.get(title) or attrgetter(field or title)
        columns[title.replace("_", " ")] = time_cell(get) if f"_{field}".endswith("_at") else get
    return columns


def call_broker(server: str, work: Callable[[Client], Awaitable[T]], *, attempts: int = 3) -> T:
    """Run `work` with a client and return its result. Gives up sooner than a program's client would."""
    import asyncio

    from fairlane import client

    async def run() -> T:
        servers = [url.strip() for url in server.split(",")]
        async with client.Client(servers, attempts=attempts, retry_delay=RETRY_SECONDS) as connected:
            return await work(connected)

    try:
        return asyncio.run(run())
    except Unavailable as error:
        if "cannot reach" not in str(error):
            raise
        raise Unavailable(
            f"{error}\nIs a broker running there? `fairlane serve` starts one; --server names another."
        ) from None
