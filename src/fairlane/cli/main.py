"""`fairlane ...`"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlane.cli import INTERRUPTED, REFUSED, TRY_AGAIN
from fairlane.cli.completion import completion, prepare
from fairlane.cli.doctor import doctor
from fairlane.cli.poll import poll
from fairlane.cli.pop import ack, pop
from fairlane.cli.push import push
from fairlane.cli.serve import serve
from fairlane.cli.status import status, top
from fairlane.cli.tail import tail
from fairlane.cli.verb import opt, verb
from fairlane.errors import FairlaneError

app = typer.Typer(
    help="Fairlane: a durable, ordered message queue on the SQL database you already run.",
    epilog="Exit codes: 0 done, 1 nothing found, 2 wrong or refused, 75 try again later.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

NOUNS = {
    "queue": "List, show, create, set, pause, explain, clear and delete queues.",
    "message": "List, show, retry, give up and delete stored messages, and read their results.",
    "group": "List, seek and delete consumer groups.",
    "dlq": "List, show, replay and purge dead letters.",
    "retention": "Delete what retention rules cover, and see what went.",
    "spec": "Check, plan and apply specs: files that declare queues.",
    "hook": "Webhooks that a spec declares.",
    "schedule": "Define, list, pause and run schedules, which push a message at every tick.",
    "worker": "Run the handlers of an app: `fairlane worker module:app`. List the workers that are alive.",
    "source": "List and forget sources, which `fairlane poll` reads.",
    "trace": "Messages of a trace, and notes of consumers on their work.",
    "maintenance": "Pause and resume all pops, or all pushes.",
    "operation": "Pushes and acks that were accepted and wait, and those of them that failed.",
}


class Noun(TyperGroup):
    """The verbs of a noun. Its module is imported when they are asked for: no command waits for those of others."""

    _verbs: Any = None

    @property
    def commands(self) -> Any:
        if not self._verbs:
            module = import_module(f"fairlane.cli.{self.name}")
            self._verbs = typer.main.get_group(module.app).commands
        return self._verbs

    @commands.setter
    def commands(self, commands: Any) -> None:
        self._verbs = commands

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """`fairlane worker module:app` is short for `fairlane worker run module:app`."""
        if self.name == "worker" and args and (":" in args[0] or not self.get_command(ctx, args[0])):
            args = ["run", *args]  # which says what is wrong with it
        return super().resolve_command(ctx, args)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fairlane {version('fairlane')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
    server: Annotated[
        str | None,
        opt(
            "The broker. It may stand behind the command too.",
            *("--server", "-s"),
            metavar="URL",
            envvar="FAIRLANE_SERVER",
        ),
    ] = None,
) -> None:
    if server is not None:
        os.environ["FAIRLANE_SERVER"] = server  # where the option of each command looks


app.command()(serve)
app.command()(push)
verb(app)(pop)
verb(app)(ack)
verb(app)(tail)
app.command()(poll)
verb(app)(status)
verb(app)(top)
app.command()(doctor)
app.command()(completion)
for _noun, _help in NOUNS.items():
    app.add_typer(typer.Typer(cls=Noun, help=_help, no_args_is_help=True), name=_noun)


def main() -> None:
    prepare()
    try:
        app()
    except FairlaneError as error:
        typer.echo(f"fairlane: {error}", err=True)
        sys.exit(TRY_AGAIN if error.retryable else REFUSED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
