"""A table in a SQLite file, as programs write it themselves, with apsw on the thread of the event loop."""

from __future__ import annotations

import apsw
import closed_loop

CREATE = "CREATE TABLE IF NOT EXISTS {table} (id INTEGER PRIMARY KEY AUTOINCREMENT, payload TEXT NOT NULL)"
TAKE = "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT ?) RETURNING payload"


class SQLiteTable:
    """Every call is a transaction of its own, because the thread of the loop has nothing to combine it with."""

    version = apsw.sqlite_lib_version()

    async def open(self, url: str, task: closed_loop.Task) -> None:
        self._connection = apsw.Connection(url.removeprefix("sqlite:///"))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.pragma("wal_autocheckpoint", 10_000)
        self._connection.execute(CREATE.format(table=task.name))
        self._insert, self._take = f"INSERT INTO {task.name} (payload) VALUES (?)", TAKE.format(table=task.name)
        self._payload, self._batch = task.payload.decode(), task.batch

    async def push(self, task: int) -> int:
        self._connection.execute(self._insert, (self._payload,))
        return 1

    async def push_batch(self, task: int) -> int:
        with self._connection:
            self._connection.executemany(self._insert, [(self._payload,)] * self._batch)
        return self._batch

    async def consume(self, task: int) -> int:
        return self._consume(self._batch)

    async def consume_one(self, task: int) -> int:
        return self._consume(1)

    def _consume(self, limit: int) -> int:
        return len(self._connection.execute(self._take, (limit,)).fetchall())

    async def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    closed_loop.main(SQLiteTable())
