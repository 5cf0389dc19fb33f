"""Login sessions of the dashboard: never the id that a browser sends, only its hash. A new or ended session is a change
of the catalogue (KEYS)."""

from __future__ import annotations

import msgspec

from fairlane.store.families.query import DatabaseTransaction, Family
from fairlane.store.families.queues import KEYS, note_changes

SESSIONS_MAX = 100
"""Sessions that one credential has at once. One more ends the oldest."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that logged in, without the id that it sends."""

    hash: bytes
    """SHA-256 of its id."""
    tenant: str
    owner: str
    """The key or token it was opened with, as the audit log names it."""
    key_hash: bytes | None = None
    """SHA-256 of the key it was opened with. The session ends with that secret."""
    caller: str | None = None
    """The caller as JSON, if it was opened with a token."""
    expires_at: int


class Sessions(Family):
    async def add(self, session: Session) -> None:
        """Store a session, and delete those that are over and those that are too many of its owner."""

        async def work(transaction: DatabaseTransaction) -> None:
            await transaction.run("sessions.forget", tenant=session.tenant, owner=session.owner, keep=SESSIONS_MAX - 1)
            await transaction.run("sessions.add", **msgspec.structs.asdict(session))
            await note_changes(transaction, [KEYS])

        await self._runner.transact(work)

    async def end(self, hash: bytes) -> None:
        """Delete a session. A second time changes nothing."""

        async def work(transaction: DatabaseTransaction) -> None:
            ended = await transaction.run("sessions.end", hash=hash)
            await note_changes(transaction, [KEYS] if ended else [])

        await self._runner.transact(work)
