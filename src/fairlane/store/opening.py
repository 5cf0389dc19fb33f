"""Opening of the store that a URL names, and of the journal of a directory."""

from __future__ import annotations

import logging
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

from fairlane.errors import InvalidRequest, StoreFull, StoreRefused, StoreUnavailable
from fairlane.runtime.clock import Clock
from fairlane.store.connecting import ConnectingStore
from fairlane.store.contract.store import Store
from fairlane.store.tail_cache import BYTES_MAX, TailCache

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal

_POSTGRES = ("postgresql://", "postgres://")
_FILES = (".db", ".sqlite", ".sqlite3")
_PATHS = ("/", "./", "../")

log = logging.getLogger(__name__)


def store_url(store: str | PathLike[str]) -> str:
    """Return the URL of a store that is named by its URL or by its file. Raises InvalidRequest for anything else."""
    if isinstance(store, PathLike):
        return f"sqlite:///{fspath(store)}"
    if not isinstance(store, str):
        raise InvalidRequest(f"a store is named by a URL or a file, not {type(store).__name__}")
    if "://" not in store and (store.startswith(_PATHS) or store.endswith(_FILES)):
        return f"sqlite:///{store}"
    if not store.startswith(("sqlite:///", *_POSTGRES)):
        scheme, separator, _ = store.partition("://")
        shown = f"{scheme:.40}://..." if separator else f"{store:.80}"  # the rest may contain a password
        raise InvalidRequest(
            f"{shown!r} names no store; use queue.db, sqlite:///path, sqlite:///:memory: or postgresql://..."
        )
    return store


async def open_journal(directory: str, bytes_max: int, url: str, encryption_key: str = "") -> Journal:
    """Open the journal for the store with this URL. It is encrypted if there is a key."""
    from fairlane.store.journal.journal import Journal
    from fairlane.store.keyring import Keyring

    keyring = Keyring.parse(encryption_key) if encryption_key else None
    return await Journal.open(directory, bytes_max=bytes_max, store=str(url), keyring=keyring)


async def open_or_wait(url: str, clock: Clock | None, options: dict[str, Any], journal: Journal | None) -> Store:
    """Open the store. With a `journal`, open it later if PostgreSQL does not answer now or a disk is full.

    Raises StoreRefused if it can never be opened, unless the journal has entries, which must not be ignored.
    """
    try:
        return await open_store(url, clock=clock, **options)
    except StoreUnavailable as error:
        kind = "postgresql" if url.startswith(_POSTGRES) else "sqlite"
        if journal is None or (kind == "sqlite" and not isinstance(error, StoreFull)):
            raise
        if isinstance(error, StoreRefused) and not journal.state().bytes:
            raise
        log.error("store unavailable, starting without it: %(error)s", {"error": error})
        why = str(error)
    return cast(Store, ConnectingStore(kind, lambda: open_store(url, clock=clock, **options), why))


async def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    encryption_key: str = "",
    sealed_queues: str = "",
    tail_cache_bytes: int = BYTES_MAX,
    **options: Any,
) -> Store:
    """Open the store that a URL names.

    `encryption_key` seals the messages of encrypted queues, and of queues that match `sealed_queues`; see `Keyring`.
    `tail_cache_bytes` limits the memory for messages that pops will soon read; 0 turns this cache off.
    """
    from fairlane.store.keyring import Keyring

    keyring = Keyring.parse(encryption_key) if encryption_key else None
    always = tuple(filter(None, map(str.strip, sealed_queues.split(","))))
    if always and keyring is None:
        raise InvalidRequest("sealed_queues needs an encryption_key")
    store = await _open_store(url, clock, tail_cache_bytes, options)
    try:
        await store.codec.set_keyring(keyring, always)
    except BaseException:
        await store.close()
        raise
    return store


async def _open_store(url: str, clock: Clock | None, tail_cache_bytes: int, options: dict[str, Any]) -> Store:
    cache = TailCache(tail_cache_bytes)
    if (url := store_url(url)).startswith("sqlite:///"):
        from fairlane.store.sqlite.store import SqliteStore

        return await SqliteStore.open(url.removeprefix("sqlite:///"), clock=clock, tail_cache=cache, **options)
    from fairlane.store.cells.store import CellsStore

    return await CellsStore.open(url, clock=clock, tail_cache=cache, **options)
