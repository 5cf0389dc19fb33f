"""Staged messages, which programs enqueue in their own transactions, and the database roles that may."""

from __future__ import annotations

from fairlane.broker.resource import Resource
from fairlane.model.names import check_name
from fairlane.wire.staged import EnqueueGrant, StagedQueue


class Staged(Resource):
    """Staged messages of a tenant."""

    async def queues(self) -> list[StagedQueue]:
        """Return the queues with staged messages, oldest first."""
        found = sorted(await self._store.staged.by_queue(self._tenant), key=lambda one: one.oldest_at)
        return [StagedQueue(queue=one.queue, messages=one.messages, oldest_at=one.oldest_at) for one in found]

    async def grant(self, role: str, queue: str | None = None) -> None:
        """Allow a role of the database to enqueue messages of a queue, or of every queue, and to complete them.

        Raises NotFound if there is no such role, and InvalidRequest on SQLite.
        """
        await self._store.staged.grant(_role(role), self._tenant, _queue(queue))

    async def revoke(self, role: str, queue: str | None = None) -> bool:
        """Undo a grant. Returns False if there is none."""
        return await self._store.staged.revoke(_role(role), self._tenant, _queue(queue))

    async def grants(self) -> list[EnqueueGrant]:
        """Return the grants of the tenant."""
        return [
            EnqueueGrant(role=one.role, queue=one.queue or None)
            for one in await self._store.staged.grants()
            if one.tenant == self._tenant
        ]


def _role(role: str) -> str:
    return check_name("role", role, chars_max=63)


def _queue(queue: str | None) -> str:
    return "" if queue is None else check_name("queue", queue)
