"""Backups of a broker on SQLite: making one while the broker runs, and restoring one while it is stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from time import time_ns
from typing import NamedTuple

from fairlane.errors import InvalidRequest, StoreRefused, StoreUnavailable
from fairlane.runtime.process import DataDirectory, LockFile, make_private
from fairlane.store.journal.backup import put_entries, read_entries
from fairlane.store.sqlite import backup as database
from fairlane.store.sqlite.backup import Inventory
from fairlane.store.sqlite.connection import lock


class Restored(NamedTuple):
    """The result of a restore."""

    inventory: Inventory
    replaced: str | None
    """New name of the store that was there before. None if there was none."""


def back_up(store: str, data_dir: Path, file: Path, *, overwrite: bool) -> Inventory:
    """Write the store and the journal to `file`, check the result, and return its inventory.

    The file appears under its name only when it is complete and durable. The journal is read first: an entry that moves
    to the store meanwhile is then in both, which is harmless, and never in neither.
    """
    if file.exists() and not overwrite:
        raise InvalidRequest(f"{file} exists; name another file, or add --overwrite")
    if not file.absolute().parent.is_dir():
        raise InvalidRequest(f"there is no directory {file.absolute().parent}; make it, or name another file")
    copy = file.with_name(f".{file.name}.{os.getpid()}")
    with database.reported(file):
        try:
            entries = read_entries(data_dir / "journal")
            make_private(str(copy))
            made_at = time_ns() // 1000
            database.copy_store(store, str(copy))
            database.finish_copy(str(copy), entries, made_at)
            inventory = database.check_backup(str(copy))
            sync(copy)
            _publish(copy, file, overwrite)
        finally:
            database.remove_copy(copy)
    return inventory


def restore(file: Path, store: str, data_dir: Path, *, overwrite: bool) -> Restored:
    """Check a backup and make it the store, with its journal. Keeps a store that was there under another name.

    Raises StoreUnavailable or Unavailable if a broker uses the store or the data directory.
    """
    inventory = database.check_backup(str(file))
    store = os.path.realpath(store)
    if os.path.exists(store) and not overwrite:
        raise InvalidRequest(f"the store {store} exists; restore to another one with --store, or add --overwrite")
    with contextlib.ExitStack() as held:
        held.callback(_lock_of(store).release)
        held.enter_context(DataDirectory(str(data_dir)))
        held.enter_context(database.reported(Path(store)))
        copy = Path(f"{store}.restoring")
        database.remove_copy(copy)
        make_private(str(copy))
        shutil.copyfile(file, copy)
        database.make_store(str(copy))
        sync(copy)
        # The journal first: entries without the store are applied to the next one, which ignores repeats. A store
        # without the entries would lack pushes that were accepted.
        put_entries(data_dir / "journal", database.journal_entries(str(file)))
        replaced = database.rename_replaced(store)
        os.rename(copy, store)
        sync(Path(store).parent)
    return Restored(inventory, replaced)


def _lock_of(store: str) -> LockFile:
    """Lock a store against brokers."""
    try:
        return lock(store)
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        reason = str(error).partition("; ")[0]
        raise StoreUnavailable(f"stop the broker, then restore: {reason}") from None


def _publish(copy: Path, file: Path, overwrite: bool) -> None:
    """Give a finished copy its name. Without `overwrite`, never replaces a file that appeared meanwhile."""
    if overwrite:
        os.rename(copy, file)
    else:
        try:
            os.link(copy, file)
        except FileExistsError:
            raise InvalidRequest(f"{file} exists; name another file, or add --overwrite") from None
    sync(file.absolute().parent)


def sync(path: Path) -> None:
    """Make a file or a directory durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
