"""Mapping of SQLite's errors to errors of the store."""

from __future__ import annotations

import apsw

from fairlane.errors import FairlaneError, OutcomeUnknown, StoreCorrupt, StoreFull, StoreUnavailable

_SENTENCES: list[tuple[type[apsw.Error], type[FairlaneError], str]] = [
    (apsw.BusyError, StoreUnavailable, "another program holds a lock on the database"),
    (apsw.LockedError, StoreUnavailable, "another program holds a lock on the database"),
    (apsw.FullError, StoreFull, "the disk is full"),
    (apsw.ReadOnlyError, StoreUnavailable, "the database cannot be written"),
    (apsw.CantOpenError, StoreUnavailable, "the database cannot be opened"),
    (apsw.PermissionsError, StoreUnavailable, "the database cannot be opened"),
    (apsw.IOError, StoreUnavailable, "the disk reported an error"),
    (apsw.CorruptError, StoreCorrupt, "the database file is damaged"),
    (apsw.NotADBError, StoreCorrupt, "the file is not an SQLite database"),
]


def translate(error: Exception, *, commit: bool = False) -> FairlaneError:
    """Return the store's error. `commit` is True if COMMIT failed, which may still take effect after a disk error."""
    if isinstance(error, FairlaneError):
        return type(error)(str(error))
    if commit and isinstance(error, apsw.IOError):
        return OutcomeUnknown(f"the disk reported an error during the commit: {error}")
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        return StoreFull(f"the disk is full: {error}")  # there is no space for the 32 KB that every open database needs
    for kind, meaning, sentence in _SENTENCES:
        if isinstance(error, kind):
            return meaning(f"{sentence}: {error}")
    return StoreUnavailable(f"SQLite refused: {error}")
