"""`fairlane migrate`: move a stopped SQLite store to PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fairlane.cli.toolkit.command import AsJson, CommandGroup, Output, command, print_output
from fairlane.cli.toolkit.output import plural
from fairlane.cli.toolkit.parameters import opt
from fairlane.config import Settings
from fairlane.errors import InvalidRequest, Unavailable

app = CommandGroup()
_FROM = opt("SQLite store to copy, such as sqlite:///fairlane.db.", "--from", metavar="URL")
_TO = opt("Empty PostgreSQL store, as postgresql://...", "--to", metavar="URL")
_DATA_DIR = opt("Data directory of the broker of the SQLite store.", envvar="FAIRLANE_DATA_DIR")


@command(app)
def migrate(
    source: Annotated[str, _FROM],
    target: Annotated[str, _TO],
    data_dir: Annotated[str, _DATA_DIR] = Settings().data_dir,
    json: Annotated[bool, AsJson.__metadata__[0]] = False,
) -> None:
    """Move a stopped SQLite store to an empty PostgreSQL store.

    Copies every row with its ids, in one transaction, and compares the log of each partition and the progress of each
    group before it commits. The SQLite store stays as it is. If the command is interrupted, the target stays empty: run
    it again.
    """
    import asyncio

    from fairlane.cli.toolkit.screen import ProgressBar
    from fairlane.store.journal.backup import read_entries
    from fairlane.store.migration import migrate as migrate_store
    from fairlane.store.opening import store_url

    from_url, to_url = store_url(source), store_url(target)
    if not from_url.startswith("sqlite:///") or to_url.startswith("sqlite:///"):
        raise InvalidRequest("this command moves a store from sqlite:///... to postgresql://...")
    if waiting := len(read_entries(Path(data_dir) / "journal")):
        raise Unavailable(
            f"the journal in {data_dir} has {waiting} entries that the store lacks; run the broker until it is empty"
        )
    with ProgressBar() as bar:
        counts = asyncio.run(migrate_store(from_url.removeprefix("sqlite:///"), to_url, bar.update))
    shown = ", ".join(plural(counts[name], noun) for name, noun in _SHOWN.items())
    text = f"Moved {shown}. Every partition and lane was compared. Start the broker with --store on the new store."
    print_output(Output(counts, text), json)


_SHOWN = {
    "queues": "queue",
    "partitions": "partition",
    "messages": "message",
    "cursors": "lane",
    "dead_letters": "dead letter",
}
