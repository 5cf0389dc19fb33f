"""API keys of all tenants: never the secret, only its hash. A change of one is a change of the catalogue (KEYS)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.store.families.query import DatabaseTransaction, Family, as_json, one, struct, value
from fairlane.store.families.queues import KEYS, note_changes
from fairlane.store.families.sessions import Session


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: str
    tenant: str
    name: str
    role: str | None
    scopes: list[str]
    hash: bytes
    """SHA-256 of its secret."""
    old_hash: bytes | None = None
    """Of the secret that it had before it was rotated, which is good until `old_until`."""
    old_until: int | None = None
    created_at: int
    created_by: str
    expires_at: int | None = None
    used_at: int | None = None
    revoked_at: int | None = None


class KnownKeys(msgspec.Struct, frozen=True):
    """The keys of all tenants that are not revoked, how many there ever were, and the sessions that are not over."""

    count: int
    keys: list[ApiKey]
    sessions: list[Session] = []


class ApiKeys(Family):
    async def add(self, key: ApiKey) -> bool:
        """Store it, with the store's time as `created_at`; False and nothing done if a key of the tenant that is not
        revoked has its name."""
        values = {**msgspec.structs.asdict(key), "scopes": as_json(key.scopes)}

        async def work(transaction: DatabaseTransaction) -> bool:
            added = await transaction.run("api_keys.add", **values)
            await note_changes(transaction, [KEYS] if added else [])
            return bool(added)

        return await self._runner.transact(work)

    async def load(self) -> KnownKeys:
        count = value(await self._runner.read("api_keys.count"))
        keys = [struct(ApiKey, row) for row in await self._runner.read("api_keys.load")]
        return KnownKeys(count, keys, [struct(Session, row) for row in await self._runner.read("sessions.load")])

    async def all(self, tenant: str) -> list[ApiKey]:
        """All of the tenant, oldest first, those that are revoked too."""
        return [struct(ApiKey, row) for row in await self._runner.read("api_keys.all", tenant=tenant)]

    async def get(self, tenant: str, named: str) -> ApiKey | None:
        """By its id, or by its name if it is not revoked."""
        return one(ApiKey, await self._runner.read("api_keys.get", tenant=tenant, named=named))

    async def revoke(self, tenant: str, id: str) -> ApiKey | None:
        """It is good no more; None if it is not there. A second time changes nothing."""
        return await self._change("api_keys.revoke", tenant=tenant, id=id)

    async def rotate(self, tenant: str, id: str, hash: bytes, *, grace_seconds: int) -> ApiKey | None:
        """Give it another secret; the one before is good for a while. None if it is not there, or revoked."""
        return await self._change("api_keys.rotate", tenant=tenant, id=id, hash=hash, seconds=grace_seconds)

    async def _change(self, statement: str, /, **values: str | int | bytes) -> ApiKey | None:
        async def work(transaction: DatabaseTransaction) -> ApiKey | None:
            changed = await transaction.run(statement, **values)
            await note_changes(transaction, [KEYS] if changed else [])
            return one(ApiKey, changed)

        return await self._runner.transact(work)

    async def mark_used(self, ids: Sequence[str]) -> None:
        """Record that these keys were used just now."""
        await self._runner.write("api_keys.mark_used", ids=list(ids))
