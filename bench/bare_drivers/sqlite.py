"""The table of rows on bare apsw, with one connection, because only one can write, and one transaction per batch.

It runs on the thread of the event loop. Nothing else needs that thread, and a second one would only add cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files

import apsw

from bench.load import BATCH, PARTITIONS, PAYLOAD, Load, Rate, closed_loop, fresh_ids

_LANES = range(PARTITIONS)

_INSERT = "INSERT INTO messages VALUES (?, ?, ?, ?, ?)"
_ADVANCE = "UPDATE lanes SET head = head + 1 WHERE id = ?"
_FIND = f"SELECT id, payload FROM jobs WHERE status = 0 ORDER BY id LIMIT {BATCH}"
_MARK = "UPDATE jobs SET status = ? WHERE id = ?"
_TAKEN, _DONE = 1, 2


@contextmanager
def _connected(url: str) -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
        assert connection.pragma("journal_mode", "wal") == "wal"
        connection.pragma("synchronous", "full")
        assert connection.pragma("synchronous") == 2
        # A batch rewrites 200 pages, so the default of 1000 pages would mean a checkpoint every five batches.
        connection.pragma("wal_autocheckpoint", 10_000)
        connection.pragma("cache_size", -65_536)
        connection.execute(files(__package__).joinpath("sqlite.sql").read_text())
        yield connection


async def push(url: str, load: Load) -> Rate:
    with _connected(url) as connection:
        connection.executemany("INSERT INTO lanes (id) VALUES (?)", [(lane,) for lane in _LANES])

        async def step(_: int) -> int:
            return _push(connection)

        rate = await closed_loop(step, load._replace(callers=1))
        stored, positions = _row(connection, "SELECT (SELECT count(*) FROM messages), (SELECT sum(head) FROM lanes)")
        assert stored == positions == rate.items, (stored, positions, rate)
    return rate


def _push(connection: apsw.Connection) -> int:
    ids = [bytes.fromhex(text.replace("-", "")) for text in fresh_ids(BATCH)]
    batch = list(zip(_LANES, ids, strict=True))
    now = time.time_ns() // 1000
    connection.execute("BEGIN IMMEDIATE")
    heads = dict(connection.execute("SELECT id, head FROM lanes"))
    connection.executemany(_INSERT, [(lane, heads[lane], id, PAYLOAD, now) for lane, id in batch])
    connection.executemany(_ADVANCE, [(lane,) for lane, _ in batch])
    connection.execute("COMMIT")
    return len(batch)


async def pop_ack(url: str, load: Load) -> Rate:
    with _connected(url) as connection:
        with connection:
            rows = ((job, PAYLOAD) for job in range(load.backlog))
            connection.executemany("INSERT INTO jobs (id, payload) VALUES (?, ?)", rows)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

        async def step(_: int) -> int:
            return _pop_ack(connection)

        rate = await closed_loop(step, load._replace(callers=1))
        (done,) = _row(connection, f"SELECT count(*) FROM jobs WHERE status = {_DONE}")
        assert done == rate.items, (done, rate)
    return rate


def _pop_ack(connection: apsw.Connection) -> int:
    connection.execute("BEGIN IMMEDIATE")
    jobs = connection.execute(_FIND).fetchall()
    connection.executemany(_MARK, [(_TAKEN, job) for job, _ in jobs])
    connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_MARK, [(_DONE, job) for job, _ in jobs])
    connection.execute("COMMIT")
    return len(jobs)


def _row(connection: apsw.Connection, query: str) -> tuple[apsw.SQLiteValue, ...]:
    row: tuple[apsw.SQLiteValue, ...] = next(connection.execute(query))
    return row
