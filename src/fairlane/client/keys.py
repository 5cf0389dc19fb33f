"""API keys: made, listed, rotated, revoked."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.model.moment import When, micros_of
from fairlane.model.names import check_name
from fairlane.wire.keys import GRACE_SECONDS, Key, KeyOptions, NewKey, RotateBody, Whoami
from fairlane.wire.keys import Keys as Listed


class Keys(Part):
    async def create(
        self,
        name: str,
        *,
        role: str | None = None,
        scopes: List[str] | tuple[str, ...] = (),
        expires_at: When | None = None,
    ) -> NewKey:
        """Make a key that may do no more than the one of this client; its secret is in the answer and nowhere else.
        Raises AlreadyExists."""
        until = None if expires_at is None else micros_of("expires_at", expires_at)
        options = KeyOptions(name=check_name("name", name), role=role, scopes=List(scopes), expires_at=until)
        return await self._ask(NewKey, "POST", "keys", body=options)

    async def list(self) -> List[Key]:
        """All, oldest first, those that are revoked too."""
        return (await self._ask(Listed, "GET", "keys")).keys

    async def get(self, key: str) -> Key:
        """By its id or its name. Raises NotFound."""
        return await self._ask(Key, "GET", "keys", check_name("key", key))

    async def revoke(self, key: str) -> Key:
        """Refuse it from now on, at every broker within a second. Raises NotFound."""
        return await self._ask(Key, "DELETE", "keys", check_name("key", key))

    async def rotate(self, key: str, *, grace_seconds: int = GRACE_SECONDS) -> NewKey:
        """Give it another secret; the one before is good for so long too. Raises NotFound."""
        body = RotateBody(grace_seconds=grace_seconds)
        return await self._ask(NewKey, "POST", "keys", check_name("key", key), "rotate", body=body)

    async def whoami(self) -> Whoami:
        """This client, as the broker knows it."""
        return await self._ask(Whoami, "GET", "whoami")
