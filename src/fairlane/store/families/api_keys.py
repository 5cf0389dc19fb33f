"""API keys of all tenants. The store has only hashes of their secrets.

Adding, rotating or revoking a key changes the catalogue (KEYS).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.store.families.query import DatabaseTransaction, Family, as_json, one, struct, value
from fairlane.store.families.queues import KEYS, note_changes
from fairlane.store.families.sessions import Session


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without its secret."""

    id: str
    tenant: str
    name: str
    role: str | None
    scopes: list[str]
    hash: bytes
    """SHA-256 of the current secret."""
    old_hash: bytes | None = None
    """SHA-256 of the secret before the last rotation. It remains valid until `old_until`."""
    old_until: int | None = None
    created_at: int
    created_by: str
    expires_at: int | None = None
    used_at: int | None = None
    revoked_at: int | None = None


class KnownKeys(msgspec.Struct, frozen=True):
    """Everything that a broker needs to authenticate requests.

    `count` includes revoked keys. `keys` and `sessions` have only valid ones, of all tenants.
    """

    count: int
    keys: list[ApiKey]
    sessions: list[Session] = []


class ApiKeys(Family):
    async def add(self, key: ApiKey) -> bool:
        """Store a key with the store's time as `created_at`.

        Returns False, without storing anything, if an active key of the tenant has the same name.
        """
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
        """Return all keys of the tenant, including revoked ones, oldest first."""
        return [struct(ApiKey, row) for row in await self._runner.read("api_keys.all", tenant=tenant)]

    async def get(self, tenant: str, named: str) -> ApiKey | None:
        """Find a key by its id, or by its name if it is not revoked."""
        return one(ApiKey, await self._runner.read("api_keys.get", tenant=tenant, named=named))

    async def revoke(self, tenant: str, id: str) -> ApiKey | None:
        """Revoke a key. Returns None if it does not exist. Revoking is idempotent."""
        return await self._change("api_keys.revoke", tenant=tenant, id=id)

    async def rotate(self, tenant: str, id: str, hash: bytes, *, grace_seconds: int) -> ApiKey | None:
        """Replace the secret of a key. The old secret remains valid for `grace_seconds`.

        Returns None if the key does not exist or is revoked.
        """
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
