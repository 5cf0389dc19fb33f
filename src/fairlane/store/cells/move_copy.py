"""The copy of a queue's rows from one cell into another.

Rows keep their ids, so leases and the ids that clients know stay valid, and sealed messages can be opened: they are
bound to their partition. The log and other large tables are copied while producers and consumers use the queue, and
what changed meanwhile is copied again. Tables that the services of a cell search, such as scheduled messages, are kept
as JSON in `arriving` until the queue arrives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Final

from fairlane.errors import StoreCorrupt
from fairlane.store.postgres.mover_connection import CopiedRows, MoverConnection, StoredColumn
from fairlane.store.statements import load

SQL = load(__package__, "move.sql")
Report = Callable[[int], Awaitable[None]]
Progress = Callable[[int, int], Awaitable[None]]
"""Function that is called with the numbers of copied messages and of all messages."""

_OF_PARTITION: Final = "x.partition_id IN (SELECT p.id FROM fairlane.partitions p WHERE p.queue_id = {queue})"
_OF_QUEUE: Final = "x.queue_id = {queue}"
_OPEN: Final = "(SELECT f.tenant, f.id FROM fairlane.fan_ins f WHERE f.ended_at IS NULL)"
LOG: Final = "segments"
EARLY: Final = {
    **dict.fromkeys(("cursors", "message_keys", "deleted_ids", "skips", "results"), _OF_PARTITION),
    **dict.fromkeys(("cancellations", "traced", "operations"), _OF_PARTITION),
    **dict.fromkeys(("dead_letters", "partitions"), _OF_QUEUE),
}
"""Large tables with the conditions for the rows of a queue: copied early, and again what changed. Partitions are last,
because the conditions of others name them."""
LATE: Final = {
    **dict.fromkeys(("claims", "failures", "effects", "cancelled_ids", "progress"), _OF_PARTITION),
    **dict.fromkeys(("groups", "retention_minutes", "retention_hours", "data_keys", "unique_keys"), _OF_QUEUE),
    "starts": "x.group_id IN (SELECT g.id FROM fairlane.groups g WHERE g.queue_id = {queue})",
}
"""Tables that are copied as a whole during the switch."""
HIDDEN: Final = {
    **dict.fromkeys(("scheduled_segments", "scheduled_keys", "operation_backlogs", "trims"), _OF_PARTITION),
    "scheduled_messages": "x.id IN (SELECT b.id FROM fairlane.scheduled_segments b "
    "JOIN fairlane.partitions p ON p.id = b.partition_id WHERE p.queue_id = {queue})",
    "expiries": _OF_PARTITION,
    "retention_rules": _OF_QUEUE,
    "fan_ins": f"(x.tenant, x.id) IN {_OPEN} AND EXISTS (SELECT FROM fairlane.fan_in_parts y "
    "WHERE y.tenant = x.tenant AND y.fan_in = x.id AND y.queue_id = {queue})",
    "fan_in_parts": f"(x.tenant, x.fan_in) IN {_OPEN} AND " + _OF_QUEUE,
    "queues": "x.id = {queue}",
}
"""Tables whose rows brokers act on, so they appear when the queue arrives."""
MERGED: Final = ("data_keys",)
"""Tables in which the target may have more rows of the queue than the source."""
_PARTITIONS: Final = 1000
_HIDDEN_ROWS: Final = 100
_SMALL_BYTES: Final = 2_000_000
_LARGE_BYTES: Final = 16_000_000
_NEVER: Final = 2**62
Partition = tuple[int, int, int]
"""Id, start and head."""


class QueueCopy:
    """A copy in progress. Writes to the target require that `term` is still the term of the mover."""

    def __init__(self, source: MoverConnection, target: MoverConnection, queue_id: int, term: int) -> None:
        self._source = source
        self._target = target
        self._queue_id = queue_id
        self._term = term
        self._columns: dict[str, list[StoredColumn]] = {}
        self._horizons: dict[str, str] = {}
        """Transactions before which the rows of a table were copied."""
        self._segments = 500
        """Segments of one statement, adapted to their size."""

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Open a transaction in the target. Raises Conflict if another mover took over."""
        async with self._target.transaction():
            await self._target.fetch(SQL["hold"], self._queue_id, self._term)
            yield

    async def copy_early(self, progress: Progress) -> int:
        """Copy what the target lacks of the log and of large tables. Returns the number of copied messages."""
        await self._load_columns()
        async with self._source.transaction():
            partitions = await self._partitions()
        total, done, copied = sum(head - start for _, start, head in partitions), 0, 0
        for some in _chunks(partitions):
            copied += await self._copy_log(some, partial(_shifted, progress, done, total))
            done += sum(head - start for _, start, head in some)
        for table in EARLY:
            async with self._source.transaction():
                rows, horizon = await self._changed(table)
            with closing(rows.file):
                async with self.writing():
                    await self._merge(table, rows)
            self._horizons[table] = horizon
        return copied

    async def copy_rest(self, tenant: str, queue: str, cell: int) -> None:
        """Copy everything that changed since. The caller locked the queue in the source, and commits the target."""
        partitions = await self._partitions()
        for some in _chunks(partitions):
            await self._copy_log(some, None)
            await self._drop_trimmed([id for id, _, _ in some])
        for table in EARLY:
            await self._merge(table, (await self._changed(table))[0])
        for table in EARLY:
            await self._delete_missing(table)
        for some in _chunks(partitions):
            ids = [id for id, _, _ in some]
            firsts = [row[3] if row[3] is not None else _NEVER for row in await self._source.fetch(SQL["ends"], ids)]
            await self._target.fetch(SQL["drop_early_ids"], ids, firsts)
            await self._compare(ids)
        for table in LATE:
            await self._replace(table)
        for row in await self._source.fetch(SQL["declared"], tenant, queue):
            await self._target.fetch(SQL["declare"], tenant, queue, *row)
        await self._target.fetch(SQL["clear_arriving"], self._queue_id)
        for table in HIDDEN:
            await self._hide(table)
        await self._target.fetch(SQL["arrange"], self._queue_id, tenant, str(cell))

    async def reveal(self) -> None:
        """Insert the hidden rows into their tables, in a transaction of the target."""
        await self._load_columns()
        for table in HIDDEN:
            names = self._names(table, quoted=True)
            values = ", ".join(f"r.{name}" for name in names)
            await self._target.fetch(
                f"INSERT INTO fairlane.{table} ({', '.join(names)}) OVERRIDING SYSTEM VALUE SELECT {values} "  # noqa: S608
                f"FROM fairlane.arriving a, jsonb_populate_recordset(NULL::fairlane.{table}, a.rows) r "
                "WHERE a.queue_id = $1 AND a.table_name = $2 ON CONFLICT DO NOTHING",
                *(self._queue_id, table),
            )
        await self._target.fetch(SQL["clear_arriving"], self._queue_id)

    # The log: segments never change, and are deleted from the beginning only.

    async def _partitions(self) -> list[Partition]:
        return [tuple(row) for row in await self._source.fetch(SQL["partitions"], self._queue_id)]

    async def _copy_log(self, some: Sequence[Partition], progress: Report | None) -> int:
        """Copy the missing segments of some partitions, in transactions of their own if there is a `progress`."""
        known = {id: (start, head) for id, start, head in some}
        first: int | None = None
        while True:
            ends = await self._target.fetch(SQL["ends"], list(known))
            there: int = sum(max(0, end - known[id][0]) for id, end, _, _ in ends)
            first = there if first is None else first
            if progress is not None:
                await progress(there)
            left = [(id, last) for id, end, last, _ in ends if end < known[id][1]]
            rows = await self._copy_segments(left, apart=progress is not None) if left else None
            if rows is None or not rows.number:  # the messages that are left were deleted
                return there - first
            self._segments = _adapted(self._segments, rows)

    async def _copy_segments(self, after: Sequence[tuple[int, int]], *, apart: bool) -> CopiedRows:
        query = SQL["segments"], [id for id, _ in after], [last for _, last in after], self._segments
        if not apart:
            rows = await self._source.copy_out(*query)
            await self._target.copy_in(LOG, self._names(LOG), rows)
            return rows
        async with self._source.transaction():
            rows = await self._source.copy_out(*query)
        with closing(rows.file):
            async with self.writing():
                await self._target.copy_in(LOG, self._names(LOG), rows)
        return rows

    async def _drop_trimmed(self, ids: list[int]) -> None:
        firsts = [row[3] if row[3] is not None else _NEVER for row in await self._source.fetch(SQL["ends"], ids)]
        await self._target.fetch(SQL["drop_trimmed"], ids, firsts)

    async def _compare(self, ids: list[int]) -> None:
        """Raise StoreCorrupt unless both logs end alike."""
        here, there = [
            [tuple(row)[:3] for row in await database.fetch(SQL["ends"], ids)]
            for database in (self._source, self._target)
        ]
        if sorted(here) != sorted(there):
            raise StoreCorrupt("the copy of a log differs from the log; nothing was switched")

    # Tables.

    async def _load_columns(self) -> None:
        if not self._columns:
            for row in await self._target.fetch(SQL["columns"]):
                self._columns.setdefault(row[0], []).append(StoredColumn(*row))

    async def _changed(self, table: str) -> tuple[CopiedRows, str]:
        """Return the rows that may have changed since the last copy, and the horizon for the next one."""
        [[horizon]] = await self._source.fetch(SQL["horizon"])
        where = EARLY[table].format(queue=self._queue_id)
        if since := self._horizons.get(table):
            where += f" AND age(x.xmin) <= age('{since}'::xid)"
        return await self._source.copy_out(self._selection(table, where)), str(horizon)

    def _selection(self, table: str, where: str) -> str:
        return f"SELECT {', '.join(self._names(table, quoted=True))} FROM fairlane.{table} x WHERE {where}"  # noqa: S608

    def _names(self, table: str, *, quoted: bool = False) -> list[str]:
        return [f'"{one.name}"' if quoted else one.name for one in self._columns[table]]

    def _keys(self, table: str) -> list[str]:
        return [f'"{one.name}"' for one in self._columns[table] if one.key]

    async def _stage(self, table: str, rows: CopiedRows, names: list[str]) -> None:
        """Put rows into a temporary table that lives until the end of the transaction."""
        await self._target.fetch(f"DROP TABLE IF EXISTS pg_temp.moving_{table}")
        quoted = ", ".join(f'"{name}"' for name in names)
        await self._target.fetch(
            f"CREATE TEMPORARY TABLE moving_{table} ON COMMIT DROP AS "  # noqa: S608
            f"SELECT {quoted} FROM fairlane.{table} WHERE false"
        )
        await self._target.copy_in(f"moving_{table}", names, rows, temporary=True)
        await self._target.fetch(f"ANALYZE pg_temp.moving_{table}")

    async def _merge(self, table: str, rows: CopiedRows) -> None:
        """Insert rows into the target, or replace those with the same key."""
        if not rows.number:
            return
        await self._stage(table, rows, self._names(table))
        same = " AND ".join(f"x.{key} = m.{key}" for key in self._keys(table))
        names = ", ".join(self._names(table, quoted=True))
        await self._target.fetch(f"DELETE FROM fairlane.{table} x USING pg_temp.moving_{table} m WHERE {same}")  # noqa: S608
        await self._target.fetch(
            f"INSERT INTO fairlane.{table} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM pg_temp.moving_{table}"  # noqa: S608
        )

    async def _delete_missing(self, table: str) -> None:
        """Delete the rows from the target that the source has deleted."""
        where = EARLY[table].format(queue=self._queue_id)
        count = f"SELECT count(*) FROM fairlane.{table} x WHERE {where}"  # noqa: S608
        [[here]], [[there]] = await self._source.fetch(count), await self._target.fetch(count)
        if here == there:  # all rows of the source are there
            return
        keys = self._keys(table)
        rows = await self._source.copy_out(
            f"SELECT {', '.join(keys)} FROM fairlane.{table} x WHERE {where}"  # noqa: S608
        )
        await self._stage(table, rows, [key.strip('"') for key in keys])
        same = " AND ".join(f"x.{key} = m.{key}" for key in keys)
        gone = f"{where} AND NOT EXISTS (SELECT FROM pg_temp.moving_{table} m WHERE {same})"
        if table == "partitions":
            some = f"SELECT x.id FROM fairlane.partitions x WHERE {gone}"  # noqa: S608
            await self._target.fetch(f"DELETE FROM fairlane.{LOG} s WHERE s.partition_id IN ({some})")  # noqa: S608
        await self._target.fetch(f"DELETE FROM fairlane.{table} x WHERE {gone}")  # noqa: S608

    async def _replace(self, table: str) -> None:
        """Replace all rows of the target by the rows of the source."""
        where = LATE[table].format(queue=self._queue_id)
        rows = await self._source.copy_out(self._selection(table, where))
        if table in MERGED:
            await self._merge(table, rows)
            return
        await self._target.fetch(f"DELETE FROM fairlane.{table} x WHERE {where}")  # noqa: S608
        await self._target.copy_in(table, self._names(table), rows)

    async def _hide(self, table: str) -> None:
        where = HIDDEN[table].format(queue=self._queue_id)
        some = (
            f"SELECT to_jsonb(x) AS value, row_number() OVER () / {_HIDDEN_ROWS} AS chunk "  # noqa: S608
            f"FROM fairlane.{table} x WHERE {where}"
        )
        chunks = await self._source.fetch(f"SELECT jsonb_agg(r.value)::text FROM ({some}) r GROUP BY r.chunk")  # noqa: S608
        for number, (rows,) in enumerate(chunks):
            await self._target.fetch(SQL["store_arriving"], self._queue_id, table, number, rows)


async def _shifted(progress: Progress, done: int, total: int, more: int) -> None:
    await progress(min(total, done + more), total)


def _chunks(partitions: Sequence[Partition]) -> list[Sequence[Partition]]:
    return [partitions[first : first + _PARTITIONS] for first in range(0, len(partitions), _PARTITIONS)]


def _adapted(segments: int, rows: CopiedRows) -> int:
    """Return the number of segments for the next statement."""
    if rows.bytes < _SMALL_BYTES:
        return min(segments * 2, 20_000)
    return max(10, segments // 2) if rows.bytes > _LARGE_BYTES else segments
