"""Moves a whole SQLite store to an empty PostgreSQL store: every row, with its ids, in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, Final

from fairlane.errors import StoreCorrupt
from fairlane.store.postgres.receive import CONVERSIONS, Column, Receiver, receiving
from fairlane.store.sqlite.tables import SqliteTables, open_tables

Progress = Callable[[str, int, int], None]
"""Function that is called with the step, the rows done and the rows of the step."""

REBUILT: Final = ("expiries", "retention_rules", "operation_backlogs", "purges")
"""Tables that stay empty. Retention fills the first two; the others are empty in a store that can move."""
_ID_TIMES: Final = "case when {0} > 0 then {0} / 1000 else -1 end"
EXPRESSIONS: Final = {
    ("partitions", "newest_id_ms"): _ID_TIMES.format("newest_id_at"),
    ("partitions", "keyed_until_ms"): _ID_TIMES.format("keyed_until"),
    ("partitions", "doubted_until_ms"): "(doubted_until + 999) / 1000",
    ("cursors", "lease_start"): "coalesce(lease_start, 0)",
    ("cursors", "lease_end"): "coalesce(lease_end, 0)",
}
"""SQL for columns that are called or kept differently on SQLite."""
_MESSAGE_BYTES_MAX: Final = ("partitions", "message_bytes_max")


async def migrate(source: str, target: str, progress: Progress) -> dict[str, int]:
    """Copy the store in the file `source` to the store `target`, and verify the copy.

    Returns the rows of each table and the number of `messages`. If it fails or is killed, the target stays empty.
    """
    with open_tables(source) as tables:
        async with receiving(target) as receiver:
            copy = _Copy(tables, receiver, progress)
            counts = await copy.run()
            await _verify(tables, receiver, counts, progress)
    return {**counts, "messages": copy.messages}


class _Copy:
    """The copying of all tables."""

    def __init__(self, source: SqliteTables, target: Receiver, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._largest: dict[int, int] = {}
        """Size of the largest message of each partition, known once the segments are copied."""
        self.messages = 0
        """Messages of the segments that were copied."""

    async def run(self) -> dict[str, int]:
        counts = {}
        there = self._source.names()
        names = [name for name in self._target.tables if name in there and name not in REBUILT]
        for table in sorted(names, key=lambda name: (name == "partitions", name)):
            counts[table] = await self._copy(table)
        for table, last in self._source.sequences().items():
            if last and table in self._target.tables and "id" in _named(self._target.tables[table]):
                await self._target.continue_ids(table, last)
        return counts

    async def _copy(self, table: str) -> int:
        existing = self._source.columns(table)
        columns = columns_of(table, self._target.tables[table], existing)
        expressions = [_expression(table, column) for column in columns]
        rows = self._counted(table, self._converted(table, columns, expressions))
        return await self._target.copy(table, _named(columns), rows)

    def _converted(self, table: str, columns: list[Column], expressions: list[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table as PostgreSQL stores them."""
        convert = [CONVERSIONS.get(column.type) for column in columns]
        names = _named(columns)
        for row in self._source.rows(table, expressions):
            values = [
                value if change is None or value is None else change(value)
                for change, value in zip(convert, row, strict=True)
            ]
            if table == "segments":
                self._measure(values[names.index("partition_id")], values[names.index("ends")])
            elif table == "partitions":
                values[names.index("message_bytes_max")] = self._largest.get(values[names.index("id")], 0)
            yield tuple(values)

    def _measure(self, partition: int, ends: list[int]) -> None:
        self.messages += len(ends)
        largest = max(end - start for start, end in zip([0, *ends], ends, strict=False))
        self._largest[partition] = max(largest, self._largest.get(partition, 0))

    def _counted(self, table: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        total = self._source.count(table)
        for done, row in enumerate(rows):
            if not done % 1000:
                self._progress(f"copy {table}", done, total)
            yield row


def columns_of(table: str, wanted: list[Column], existing: set[str]) -> list[Column]:
    """Return the columns to copy. Those that only PostgreSQL has keep their defaults."""
    computed = {name for of, name in (*EXPRESSIONS, _MESSAGE_BYTES_MAX) if of == table}
    return [column for column in wanted if column.name in existing or column.name in computed]


def _expression(table: str, column: Column) -> str:
    if (table, column.name) == _MESSAGE_BYTES_MAX:
        return "0"
    return EXPRESSIONS.get((table, column.name), f'"{column.name}"')


def _named(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns]


async def _verify(source: SqliteTables, target: Receiver, counts: dict[str, int], progress: Progress) -> None:
    """Compare both stores. Raises StoreCorrupt if a table lacks rows, or a lane differs."""
    for table, count in counts.items():
        if not source.count(table) == count == await target.count(table):
            raise StoreCorrupt(f"table {table} was not copied completely; nothing was stored")
    partitions, lanes = counts["partitions"], counts["cursors"]
    await _compare("verify partition", source.log_hashes(), target.log_hashes(), partitions, progress)
    await _compare("verify lane", source.lanes(), target.lanes(), lanes, progress)


async def _compare(
    step: str, expected: Iterator[Any], found: AsyncIterator[Any], total: int, progress: Progress
) -> None:
    copied = [one async for one in found]
    for done, (one, other) in enumerate(zip_longest(expected, copied)):
        if one != other:
            raise StoreCorrupt(f"{step} {(one or other)[0]}: the copy differs; nothing was stored")
        if not done % 1000:
            progress(step, done, total)
