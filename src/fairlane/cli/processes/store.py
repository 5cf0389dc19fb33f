"""The store of a broker process: its options, and the data directory with the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from fairlane.config import EMBEDDED, Settings


def store_options(settings: Settings) -> dict[str, Any]:
    """Return the options for opening the store."""
    cache = {"tail_cache_bytes": settings.tail_cache_bytes}
    if settings.store.startswith("sqlite"):
        return cache
    return cache | {
        "listen_url": settings.listen_url,
        "statement_cache": settings.statement_cache,
        "allow_unsafe": settings.allow_unsafe,
    }


@contextmanager
def own_data_directory(settings: Settings) -> Iterator[Settings]:
    """Lock the data directory and run the embedded PostgreSQL, if any. Yields the settings for worker processes."""
    from fairlane.runtime.process import DataDirectory

    with DataDirectory(settings.data_dir) as directory:
        if settings.store != EMBEDDED:
            yield settings
            return
        from fairlane.store.postgres.embedded import EmbeddedPostgres

        with EmbeddedPostgres(directory.path, connections=20 * settings.workers) as postgres:
            yield msgspec.structs.replace(settings, store=postgres.url)
