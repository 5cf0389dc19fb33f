"""`fairlane ...`"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from fairlane.cli import (
    ack,
    dlq,
    group,
    hook,
    journal,
    operation,
    poll,
    pop,
    push,
    queue,
    retention,
    schedule,
    serve,
    source,
    spec,
    tail,
    worker,
)
from fairlane.cli.exits import INTERRUPTED, REFUSED, TRY_AGAIN
from fairlane.errors import FairlaneError

app = typer.Typer(
    help="Fairlane: a durable, ordered message queue on the SQL database you already run.",
    epilog="Exit codes: 0 done, 1 nothing found, 2 wrong or refused, 75 try again later.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fairlane {version('fairlane')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-s",
            envvar="FAIRLANE_SERVER",
            metavar="URL",
            help="The broker. It may stand behind the command too.",
        ),
    ] = None,
) -> None:
    if server is not None:
        os.environ["FAIRLANE_SERVER"] = server  # where the option of each command looks


app.command(name="serve")(serve.serve)
app.command(name="push")(push.push)
app.command(name="pop")(pop.pop)
app.command(name="ack")(ack.ack)
app.command(name="tail")(tail.tail)
app.command(name="poll")(poll.poll)
app.add_typer(queue.app, name="queue")
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(retention.app, name="retention")
app.add_typer(spec.app, name="spec")
app.add_typer(hook.app, name="hook")
app.add_typer(schedule.app, name="schedule")
app.add_typer(worker.app, name="worker")
app.add_typer(source.app, name="source")
app.add_typer(operation.app, name="operation")
app.add_typer(journal.app, name="journal")


def main() -> None:
    try:
        app()
    except FairlaneError as error:
        typer.echo(f"fairlane: {error}", err=True)
        sys.exit(TRY_AGAIN if error.retryable else REFUSED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
