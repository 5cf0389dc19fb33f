"""`fairlane source ...`"""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table, shown_time

app = typer.Typer(help="List and forget sources, which `fairlane poll` reads.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the source.", show_default=False)]


@app.command("list")
def list_sources(server: Server = DEFAULT, json: AsJson = False) -> None:
    """List the sources, and how far each was read."""
    with connected(server) as client:
        sources = client.sources()
    if json:
        print_json(sources)
        return
    rows = [
        (one.name, one.records, one.cursor, shown_time(one.committed_at), shown_time(one.swept_at)) for one in sources
    ]
    print_table(("name", "records", "cursor", "read", "swept"), rows, empty="There are no sources.")


@app.command()
def delete(name: Name, server: Server = DEFAULT, yes: Yes = False) -> None:
    """Forget how far a source was read, and its records: the next poll reads it from the beginning, as if all were
    new."""
    confirm(f"Forget source {name} and what is known of its records?", yes)
    with connected(server) as client:
        deleted = client.delete_source(name)
    echo(f"Source {name} is gone." if deleted else f"There is no source {name}.")
