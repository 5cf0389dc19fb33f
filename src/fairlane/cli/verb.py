"""Verbs of the command line, declared once: a function of a client, and what is printed of what it returns.

    app = Noun("queue")

    @verb(app, columns=columns_of("queue partition"), empty="Nobody holds a lease.")
    async def leases(client: Client, queue: QueueName, limit: Limit = 100) -> Any:
        '''List live leases, the next to end first.'''
        return await client.queues.leases(queue, limit=limit)

is `fairlane queue leases QUEUE --limit N`, with `--server` and `--json` as every verb has them. A noun is a module of
its own and a line in `nouns.py`; what a parameter may be is told by `command.py`. The docstring is the help: its first
sentence stands in the list of commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar

from fairlane.cli import Exit
from fairlane.cli.command import Noun as Noun
from fairlane.cli.command import Parameter, parameters_of
from fairlane.cli.command import arg as arg
from fairlane.cli.command import opt as opt
from fairlane.cli.output import echo, print_json, print_table, shown_at
from fairlane.errors import Unavailable
from fairlane.model.names import DEFAULT_SERVER

if TYPE_CHECKING:
    from fairlane.client import Client as Client
else:
    Client = object  # imported by the commands that need one: a broker must not pay for it, nor `--help` wait for it

Columns: TypeAlias = dict[str, Callable[[Any], object]]
"""What stands in each column, by its title."""
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
T = TypeVar("T")

_SERVER = opt(
    "The broker; several, separated by commas, if they share a store.",
    *("--server", "-s"),
    metavar="URL",
    envvar="FAIRLANE_SERVER",
)
Server = Annotated[str, _SERVER]
AsJson = Annotated[bool, opt("Print JSON for programs instead.", "--json")]
Yes = Annotated[bool, opt("Do not ask.", "--yes", "-y")]
Limit = Annotated[int, opt("At most so many.", "--limit", "-n")]
QueueName = Annotated[str, arg("QUEUE", "Name of the queue.")]
SERVER = Parameter("server", Server, DEFAULT_SERVER)
JSON = Parameter("json", AsJson, False)
RETRY_SECONDS = 0.3
"""Before a broker that did not answer is asked again: somebody is watching."""


class Shown(NamedTuple):
    """The answer of a verb: `value` for programs, a sentence or something that prints for people, and the exit code."""

    value: Any
    text: str | Callable[[], object]
    code: int = 0


def verb(
    app: Noun,
    name: str | None = None,
    *,
    columns: Columns | None = None,
    rows: str = "",
    empty: str = "",
    facts: Columns | None = None,
) -> Callable[[Handler], Handler]:
    """Make a command of a coroutine function of a client and of options: it gets `--server` and `--json`.

    With `columns` the function returns a list, or a page whose field `rows` is one, which is printed as a table, or
    `empty` if there is none. With `facts` it returns one thing, of which these are printed. Otherwise it returns what
    is `Shown`, or prints by itself what `json`, which it takes then, asks for.
    """

    def decorate(handler: Handler) -> Handler:
        takes_json = "json" in handler.__annotations__

        def command(server: str, json: bool = False, **options: Any) -> None:
            answer = ask(server, lambda client: handler(client, **options | ({"json": json} if takes_json else {})))
            if columns is not None:
                found = getattr(answer, rows) if rows else answer
                print_shown(Shown(answer, lambda: print_rows(columns, found, empty=empty)), json)
            elif facts is not None:
                print_shown(Shown(answer, lambda: print_facts(facts, answer)), json)
            elif answer is not None:
                print_shown(answer, json)

        def parameters() -> list[Parameter]:
            return [*parameters_of(handler, besides=("client", "json")), SERVER, JSON]

        app.add(name or handler.__name__, command, handler.__doc__, parameters)
        return handler

    return decorate


def print_shown(answer: Shown, json: bool) -> None:
    if json:
        print_json(answer.value)
    elif isinstance(answer.text, str):
        echo(answer.text)
    else:
        answer.text()
    if answer.code:
        raise Exit(answer.code)


def print_rows(columns: Columns, found: Sequence[Any], *, empty: str = "") -> None:
    """A row for each of what was found."""
    print_table(list(columns), [_cells(columns, one) for one in found], empty=empty)


def print_facts(columns: Columns, one: Any) -> None:
    """A row for each column that has something."""
    facts = zip(columns, _cells(columns, one), strict=True)
    print_table(("", ""), [(title, cell) for title, cell in facts if cell not in (None, "")], empty="")


def _cells(columns: Columns, one: Any) -> list[object]:
    return [cell(one) for cell in columns.values()]


def columns_of(fields: str, **made: Callable[[Any], object]) -> Columns:
    """Columns by the fields that stand in them, each under its name or as `title=field`, with _ for a blank in a title;
    those of `made` are functions of the row. A field whose name ends with `_at`, or is `at`, is a point in time."""
    columns: Columns = {}
    for word in fields.split():
        title, _, field = word.partition("=")
        get = made.get(title) or attrgetter(field or title)
        columns[title.replace("_", " ")] = shown_at(get) if f"_{field}".endswith("_at") else get
    return columns


def ask(server: str, work: Callable[[Client], Awaitable[T]], *, attempts: int = 3) -> T:
    """What `work` comes to with a client. It gives up sooner than a program's would."""
    import asyncio

    from fairlane import client

    async def asked() -> T:
        servers = [url.strip() for url in server.split(",")]
        async with client.Client(servers, attempts=attempts, retry_delay=RETRY_SECONDS) as connected:
            return await work(connected)

    try:
        return asyncio.run(asked())
    except Unavailable as error:
        if "cannot reach" not in str(error):
            raise
        raise Unavailable(
            f"{error}\nIs a broker running there? `fairlane serve` starts one; --server names another."
        ) from None
