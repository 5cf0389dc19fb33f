"""Sources, and what is known of their records."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from fairlane.errors import FairlaneError
from fairlane.model.source import Source, SourceStep
from fairlane.store.sources import refusal
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.messages import transact
from fairlane.store.sqlite.rows import rows
from fairlane.store.values import PushResult, Settled, Settlement, Slice, Verdicts

_COLUMNS = (
    "id, tenant, name, revision, cursor, token, leased_until, created_at, sweep, sweeping, sweep_cursor, swept_at, "
    "committed_at, records"
)
GET = f"select {_COLUMNS} from sources where tenant = ? and name = ?"  # noqa: S608
LIST = f"select {_COLUMNS} from sources where tenant = ? order by name"  # noqa: S608
LEASE = f"""
insert into sources (tenant, name, leased_until, created_at) values (?1, ?2, ?3, ?4)
on conflict (tenant, name) do update set token = token + 1, leased_until = excluded.leased_until
where leased_until is null or leased_until <= ?4
returning {_COLUMNS}
"""  # noqa: S608
KEEP = f"""
update sources set leased_until = ?4 where tenant = ?1 and name = ?2 and token = ?3 and leased_until > ?5
returning {_COLUMNS}
"""  # noqa: S608
RELEASE = """
update sources set leased_until = null where tenant = ? and name = ? and token = ? and leased_until > ? returning id
"""
DELETE = "delete from sources where tenant = ? and name = ? returning id"
DELETE_RECORDS = "delete from shadow_records where source_id = ?"
KNOWN = """
select r.key, r.hash from json_each(?2) k join shadow_records r on r.source_id = ?1 and r.key = k.value
"""
UNSEEN = "select key from shadow_records where source_id = ? and sweep < ? order by sweep, key limit ?"
STEP = """
update sources set revision = ?2, cursor = ?3, sweep = ?4, sweeping = ?5, sweep_cursor = ?6,
    swept_at = iif(?7, ?8, swept_at), committed_at = ?8, records = ?9
where id = ?1
"""
SEE = """
insert into shadow_records (source_id, key, hash, sweep) values (?1, ?2, ?3, ?4)
on conflict (source_id, key) do update set hash = excluded.hash, sweep = excluded.sweep
"""
FORGET = "delete from shadow_records where source_id = ? and key = ?"


class Sources:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def lease(self, tenant: str, name: str, *, seconds: int) -> Source | None:
        return await self._database.write(
            lambda db, now: _one(rows(db, LEASE, tenant, name, now + seconds * 1_000_000, now))
        )

    async def keep(self, tenant: str, name: str, token: int, *, seconds: int) -> Source | None:
        return await self._database.write(
            lambda db, now: _one(rows(db, KEEP, tenant, name, token, now + seconds * 1_000_000, now))
        )

    async def release(self, tenant: str, name: str, token: int) -> bool:
        return await self._database.write(lambda db, now: bool(rows(db, RELEASE, tenant, name, token, now)))

    async def get(self, tenant: str, name: str) -> Source | None:
        return await self._database.read(lambda db, now: _one(rows(db, GET, tenant, name)))

    async def list(self, tenant: str) -> List[Source]:
        return await self._database.read(lambda db, now: [_source(row) for row in rows(db, LIST, tenant)])

    async def delete(self, tenant: str, name: str) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            found = rows(db, DELETE, tenant, name)
            if found:
                db.execute(DELETE_RECORDS, found[0])
            return bool(found)

        return await self._database.write(work)

    async def known(self, source_id: int, keys: Sequence[str]) -> dict[str, str]:
        asked = msgspec.json.encode(keys).decode()
        return await self._database.read(lambda db, now: dict(rows(db, KNOWN, source_id, asked)))

    async def unseen(self, source_id: int, sweep: int, *, limit: int) -> List[str]:
        return await self._database.read(lambda db, now: [key for (key,) in rows(db, UNSEEN, source_id, sweep, limit)])

    async def commit(
        self, step: SourceStep, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        def work(db: apsw.Connection, now: int) -> tuple[List[Settled], List[PushResult]] | FairlaneError:
            refused = refusal(step, _one(rows(db, GET, step.tenant, step.name)), now)
            return refused or transact(db, now, settlements, slices, also=lambda: _apply(db, now, step))

        answer = await self._database.write(work)
        if isinstance(answer, FairlaneError):
            raise answer
        return answer


def _apply(db: apsw.Connection, now: int, step: SourceStep) -> None:
    where = (step.cursor, step.sweep, step.sweeping, step.sweep_cursor, step.swept)
    db.execute(STEP, (step.source_id, step.revision, *where, now, step.records))
    db.executemany(SEE, [(step.source_id, key, hash, step.sweep) for key, hash in step.seen])
    db.executemany(FORGET, [(step.source_id, key) for key in step.gone])


def _one(found: List[Any]) -> Source | None:
    return _source(found[0]) if found else None


def _source(row: Sequence[Any]) -> Source:
    found = Source(**dict(zip(Source.__struct_fields__, row, strict=True)))
    return msgspec.structs.replace(found, sweeping=bool(found.sweeping))
