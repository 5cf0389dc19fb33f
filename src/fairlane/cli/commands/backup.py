"""`fairlane backup` and `fairlane restore`: copy an SQLite store with its journal, and put a copy back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fairlane.cli.commands.serve import given_settings, settings_options
from fairlane.cli.toolkit.command import AsJson, CommandGroup, Output, print_output
from fairlane.cli.toolkit.output import format_time
from fairlane.cli.toolkit.parameters import arg, opt, parameter
from fairlane.config import Settings
from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from fairlane.store.sqlite.backup import Inventory

app = CommandGroup()
_FILE = parameter("file", Annotated[Path, arg("FILE", "File of the backup.")])
_SQLITE = "sqlite:///"


def backup(file: Path, overwrite: bool, check: bool, config: Path | None, json: bool, **options: Any) -> None:
    """Back up an SQLite store and its journal to one file, while the broker runs.

    Reads the settings of `fairlane serve`, so run it where the broker runs. FILE appears when the backup is complete,
    checked and on disk.
    """
    from fairlane.store.backup import back_up
    from fairlane.store.sqlite.backup import check_backup, reported

    settings = given_settings(options, config)
    if check:
        with reported(file):
            inventory = check_backup(str(file))
        print_output(_output(inventory, f"{file} is complete: {{}}."), json)
        return
    inventory = back_up(_store_of(settings), Path(settings.data_dir), file, overwrite=overwrite)
    print_output(_output(inventory, f"Backed up to {file}: {{}}."), json)


def restore(file: Path, overwrite: bool, config: Path | None, json: bool, **options: Any) -> None:
    """Restore a backup as the store of a broker that is stopped.

    Checks the backup first. With --overwrite, keeps the store that was there as STORE.replaced-1.
    """
    from fairlane.store.backup import restore as restore_backup

    settings = given_settings(options, config)
    store = _store_of(settings)
    done = restore_backup(file, store, Path(settings.data_dir), overwrite=overwrite)
    text = f"Restored {store} as of {format_time(done.inventory.made_at)}: {{}}."
    if done.replaced:
        text += f" The store that was there is now {done.replaced}."
    print_output(_output(done.inventory, text, replaced=done.replaced), json)


def _output(inventory: Inventory, text: str, **more: Any) -> Output:
    counts = ", ".join(f"{count} {name if count != 1 else name.removesuffix('s')}" for name, count in _shown(inventory))
    return Output({"madeAt": inventory.made_at, "counts": inventory.counts, **more}, text.format(counts))


def _shown(inventory: Inventory) -> list[tuple[str, int]]:
    """Return the counts to print: of the main tables, and of other tables that have rows."""
    always = ("queues", "messages", "dead letters")
    return [(name, count) for name, count in inventory.counts.items() if name in always or count]


def _store_of(settings: Settings) -> str:
    """Return the path of the SQLite store. Raises InvalidRequest for another store."""
    from fairlane.store.opening import store_url

    store = settings.store
    if "://" not in store or not (url := store_url(store)).startswith(_SQLITE) or url.endswith(":memory:"):
        raise InvalidRequest(
            "this command is for SQLite files; back up PostgreSQL with pg_dump, see docs/operations.md"
        )
    return url.removeprefix(_SQLITE)


def _flag(name: str, help: str) -> Any:
    return parameter(name, Annotated[bool, opt(help, f"--{name}")], False)


app.add(
    "backup",
    backup,
    backup.__doc__,
    [
        _FILE,
        _flag("overwrite", "Replace FILE if it exists."),
        _flag("check", "Check the backup in FILE instead, and write nothing."),
        *settings_options("store", "data_dir"),
        parameter("json", AsJson, False),
    ],
)
app.add(
    "restore",
    restore,
    restore.__doc__,
    [
        _FILE,
        _flag("overwrite", "Replace the store if it exists."),
        *settings_options("store", "data_dir"),
        parameter("json", AsJson, False),
    ],
)
