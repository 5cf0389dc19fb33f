"""Login sessions of the dashboard. The store has only hashes of their ids.

Adding or ending a session changes the catalogue (KEYS).
"""

from __future__ import annotations

import msgspec

from fairlane.store.families.query import DatabaseTransaction, Family
from fairlane.store.families.queues import KEYS, note_changes

SESSIONS_MAX = 100
"""Concurrent sessions of one credential. One more ends the oldest."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a browser that logged in, without its id."""

    hash: bytes
    """SHA-256 of the session's id."""
    tenant: str
    owner: str
    """Name, in the audit log, of the key or token that opened the session."""
    key_hash: bytes | None = None
    """SHA-256 of the key that opened the session. The session ends with that secret."""
    caller: str | None = None
    """JSON of the caller, if a token opened the session."""
    expires_at: int


class Sessions(Family):
    async def add(self, session: Session) -> None:
        """Store a session. Also deletes expired sessions, and the oldest ones of an owner with too many."""

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
