"""API keys: create, list, rotate, revoke. A secret is shown once and never stored."""

from __future__ import annotations

import secrets
from typing import Literal

import msgspec

from fairlane.broker.credentials import Credentials, grants_of
from fairlane.broker.tenants import TenantQuota
from fairlane.errors import AlreadyExists, Forbidden, InvalidRequest, NotFound
from fairlane.model.api_key import hash_of, text_of
from fairlane.model.ids import uuid7
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import check_count, check_name
from fairlane.model.principal import ANYBODY, Grants, Principal
from fairlane.store.contract.store import Store
from fairlane.store.families.api_keys import ApiKey
from fairlane.wire.keys import GRACE_SECONDS, GRACE_SECONDS_MAX, SCOPES_MAX, Key, NewKey

NAME_CHARS_MAX = 100


class Keys:
    """The keys of a tenant. A `caller` cannot create, rotate or revoke a key that may do more than the caller.

    `quota` enforces the quota of the tenant. Commands that open the store directly pass None.
    """

    def __init__(self, store: Store, tenant: str, credentials: Credentials, quota: TenantQuota | None = None) -> None:
        self._quota = quota
        self._store = store
        self._tenant = tenant
        self._credentials = credentials

    async def create(
        self,
        name: str,
        *,
        role: str | None = None,
        scopes: list[str] | tuple[str, ...] = (),
        expires_at: Moment | None = None,
        caller: Principal = ANYBODY,
    ) -> NewKey:
        """Create a key. Its secret is only in the answer. Raises AlreadyExists if a valid key has the name."""
        check_name("name", name, chars_max=NAME_CHARS_MAX)
        check_count("scopes", len(scopes), least=0, most=SCOPES_MAX)
        grants = grants_of(role, list(scopes))
        if not (role or scopes):
            raise InvalidRequest("a key needs a role (admin, read-write, read-only) or scopes")
        now = await self._store.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidRequest("expiresAt is in the past")
        _check_within(caller, grants, expires_at)
        if self._quota is not None:
            await self._quota.check_others()
        secret = text_of(secrets.token_bytes(32))
        key = ApiKey(
            id=uuid7(),
            tenant=self._tenant,
            name=name,
            role=role,
            scopes=list(scopes),
            hash=hash_of(secret),
            created_at=now,
            created_by=caller.name,
            expires_at=None if expires_at is None else int(expires_at),
        )
        if not await self._store.api_keys.add(key):
            raise AlreadyExists(f"there is a key {name!r} already; rotate it, or revoke it first")
        await self._credentials.changed()
        return _new_key(key, now, secret)

    async def all(self) -> list[Key]:
        """Return all keys of the tenant, oldest first, including revoked ones."""
        now = await self._store.now()
        return [_shown(key, now) for key in await self._store.api_keys.all(self._tenant)]

    async def get(self, key: str) -> Key:
        """Return a key by its id or its name. Raises NotFound."""
        return _shown(await self._found(key), await self._store.now())

    async def revoke(self, key: str, *, caller: Principal = ANYBODY) -> Key:
        """Revoke a key. Every broker refuses it within a second, also for waiting requests. Raises NotFound."""
        found = await self._found(key)
        _check_covered(caller, grants_of(found.role, found.scopes))
        revoked = await self._store.api_keys.revoke(self._tenant, found.id)
        await self._credentials.changed()
        return _shown(revoked or found, await self._store.now())

    async def rotate(self, key: str, *, grace_seconds: int = GRACE_SECONDS, caller: Principal = ANYBODY) -> NewKey:
        """Rotate the secret. The previous one stays valid for `grace_seconds`. Raises NotFound."""
        check_count("graceSeconds", grace_seconds, least=0, most=GRACE_SECONDS_MAX)
        found = await self._found(key)
        _check_within(caller, grants_of(found.role, found.scopes), found.expires_at)
        secret = text_of(secrets.token_bytes(32))
        rotated = await self._store.api_keys.rotate(
            self._tenant, found.id, hash_of(secret), grace_seconds=grace_seconds
        )
        if rotated is None:
            raise NotFound(f"the key {found.name!r} is revoked; create another one")
        await self._credentials.changed()
        return _new_key(rotated, await self._store.now(), secret)

    async def _found(self, named: str) -> ApiKey:
        key = await self._store.api_keys.get(self._tenant, check_name("key", named))
        if key is None:
            raise NotFound(f"there is no key {named!r:.100}")
        return key


def _check_covered(caller: Principal, grants: Grants) -> None:
    if not caller.grants.covers(grants):
        raise Forbidden(f"{caller.name} may not do this: the key may do more than {caller.name} itself")


def _check_within(caller: Principal, grants: Grants, expires_at: int | None) -> None:
    _check_covered(caller, grants)
    if caller.expires_at is not None and (expires_at is None or expires_at > caller.expires_at):
        raise Forbidden(f"{caller.name} may not do this: the key would be valid for longer than {caller.name} itself")


def _status(key: ApiKey, now: int) -> Literal["active", "expired", "revoked"]:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.expires_at is None or key.expires_at > now else "expired"


def _shown(key: ApiKey, now: int) -> Key:
    return Key(
        id=key.id,
        name=key.name,
        tenant=key.tenant,
        role=key.role,
        scopes=key.scopes,
        status=_status(key, now),
        created_at=Moment(key.created_at),
        created_by=key.created_by,
        expires_at=moment_or_none(key.expires_at),
        used_at=moment_or_none(key.used_at),
        revoked_at=moment_or_none(key.revoked_at),
    )


def _new_key(key: ApiKey, now: int, secret: str) -> NewKey:
    return NewKey(**msgspec.structs.asdict(_shown(key, now)), key=secret)
