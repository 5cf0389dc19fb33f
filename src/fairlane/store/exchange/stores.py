"""Export from a store, and import into one, that is named by its URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from fairlane.store.exchange.exporting import Progress, export
from fairlane.store.exchange.importing import Imported, ImportReader, ImportWriter
from fairlane.store.exchange.snapshot import QUEUE_TABLES, STORE_TABLES, ImportTarget, Snapshot
from fairlane.store.sqlite import exchange as sqlite

_SQLITE = "sqlite:///"


async def export_store(url: str, queues: Sequence[str], progress: Progress) -> AsyncIterator[bytes]:
    """Yield the lines of an export of one moment of a store, which brokers may use."""
    async with _reading(url) as snapshot:
        async for line in export(snapshot, queues, progress):
            yield line


async def import_lines(url: str, lines: Iterable[bytes], progress: Progress) -> Imported:
    """Import an export, with one transaction for each queue. An SQLite store must not be in use."""
    with sqlite.scratch() as scratch:
        reader = ImportReader(scratch, progress)
        reader.read(lines)
        async with _adding(url, scratch) as target:
            return await ImportWriter(scratch, target, progress).run(reader.messages)


@asynccontextmanager
async def _reading(url: str) -> AsyncIterator[Snapshot]:
    if url.startswith(_SQLITE):
        with sqlite.snapshot(url.removeprefix(_SQLITE)) as snapshot:
            yield snapshot
        return
    from fairlane.store.postgres import exchange as postgres

    with sqlite.scratch() as empty:
        columns = _columns(empty)
    async with postgres.snapshot(url, columns) as rows:
        yield rows


@asynccontextmanager
async def _adding(url: str, scratch: sqlite.SqliteRows) -> AsyncIterator[ImportTarget]:
    if url.startswith(_SQLITE):
        with sqlite.adding(url.removeprefix(_SQLITE)) as target:
            yield target
        return
    from fairlane.store.postgres import exchange as postgres

    async with postgres.adding(url, _columns(scratch)) as rows:
        yield rows


def _columns(rows: sqlite.SqliteRows) -> dict[str, dict[str, str]]:
    return {table: rows.columns(table) for table in (*QUEUE_TABLES, *STORE_TABLES)}
