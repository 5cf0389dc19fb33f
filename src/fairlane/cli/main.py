"""`fairlane ...`"""

from __future__ import annotations

import sys

import typer

from fairlane.cli import serve
from fairlane.errors import FairlaneError

app = typer.Typer(
    help="Fairlane: a durable, ordered message queue on the SQL database you already run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(name="serve")(serve.serve)


@app.callback()
def _root() -> None:
    """Keeps `fairlane serve` a subcommand while it is the only one."""


def main() -> None:
    try:
        app()
    except FairlaneError as error:
        typer.echo(f"fairlane: {error}", err=True)
        sys.exit(2 if not error.retryable else 75)
