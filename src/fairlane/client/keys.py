"""API keys: create, list, rotate, revoke."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.model.moment import When, micros_of
from fairlane.model.names import check_name
from fairlane.wire.keys import GRACE_SECONDS, Key, KeyOptions, NewKey, RotateBody, Whoami
from fairlane.wire.keys import Keys as Listed


class Keys(ClientResource):
    async def create(
        self,
        name: str,
        *,
        role: str | None = None,
        scopes: list[str] | tuple[str, ...] = (),
        expires_at: When | None = None,
    ) -> NewKey:
        """Create a key with at most the permissions of this client's key.

        The secret is only in this answer. Raises AlreadyExists.
        """
        until = None if expires_at is None else micros_of("expires_at", expires_at)
        options = KeyOptions(name=check_name("name", name), role=role, scopes=list(scopes), expires_at=until)
        return await self._call(NewKey, "POST", "keys", body=options)

    async def all(self) -> list[Key]:
        """Return all keys, oldest first, including revoked ones."""
        return (await self._call(Listed, "GET", "keys")).keys

    async def get(self, key: str) -> Key:
        """Return a key by its id or name. Raises NotFound."""
        return await self._call(Key, "GET", "keys", check_name("key", key))

    async def revoke(self, key: str) -> Key:
        """Revoke a key. Every broker refuses it within a second. Raises NotFound."""
        return await self._call(Key, "DELETE", "keys", check_name("key", key))

    async def rotate(self, key: str, *, grace_seconds: int = GRACE_SECONDS) -> NewKey:
        """Give a key a new secret. The old one stays valid for `grace_seconds`. Raises NotFound."""
        body = RotateBody(grace_seconds=grace_seconds)
        return await self._call(NewKey, "POST", "keys", check_name("key", key), "rotate", body=body)

    async def whoami(self) -> Whoami:
        """Return the identity of this client, as the broker authenticated it."""
        return await self._call(Whoami, "GET", "whoami")
