"""PostgreSQL connections that outlive a store, for the next store on the same database."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import asyncpg

from fairlane.runtime.clock import Clock
from fairlane.store.postgres.connection import Database, open_database
from fairlane.store.postgres.driver import SCHEMA

KEPT_MAX = 8
"""Limit of unused pools. Tests move on to another database from time to time and do not return."""
_Key = tuple[str, int, bool, str]


class _Pool:
    """A pool that stays open when its store is closed."""

    def __init__(self, pool: asyncpg.Pool[Any], kept: OrderedDict[_Pool, _Key], key: _Key) -> None:
        self.pool = pool
        self._kept = kept
        self._key = key

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)

    async def close(self) -> None:
        """Keep the pool for another store. Closes the oldest one."""
        self._kept[self] = self._key
        if len(self._kept) > KEPT_MAX:
            oldest, _ = self._kept.popitem(last=False)
            await oldest.pool.close()


class KeptSessions:
    """Pools that are kept.

    In a new session the server reads its catalogue and plans every statement, which takes longer than most tests.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[_Pool, _Key] = OrderedDict()

    async def open_database(
        self,
        url: str,
        *,
        connections: int,
        statement_cache: bool,
        clock: Clock | None,
        schema: str = SCHEMA,
        distributed: bool = False,
    ) -> Database:
        """Return the database of a store, with kept connections if there are any."""
        key = url, connections, statement_cache, schema
        pool = next((pool for pool, its in self._kept.items() if its == key), None)
        if pool is None:
            options: Any = {"connections": connections, "statement_cache": statement_cache, "schema": schema}
            options["distributed"] = distributed
            opened = await open_database(url, clock=clock, **options)
            pool = _Pool(opened._pool, self._kept, key)
        else:
            del self._kept[pool]
        return Database(pool, clock)

    async def close(self) -> None:
        for pool in self._kept:
            await pool.pool.close()
