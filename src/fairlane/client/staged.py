"""Staged messages, and the database roles that may enqueue them. `fairlane.sql` enqueues."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.wire import staged as wire


class Staged(ClientResource):
    async def queues(self) -> list[wire.StagedQueue]:
        """Return the queues with staged messages, oldest first."""
        return (await self._call(wire.StagedQueues, "GET", "staged")).queues

    async def grants(self) -> list[wire.EnqueueGrant]:
        """Return the roles of the database that may enqueue, with their queues."""
        return (await self._call(wire.EnqueueGrants, "GET", "staged", "grants")).grants

    async def grant(self, role: str, queue: str | None = None) -> wire.EnqueueGrant:
        """Allow a role of the database to enqueue messages of a queue, or of every queue, and to complete them.

        Raises NotFound if there is no such role, and InvalidRequest on SQLite.
        """
        body = wire.EnqueueGrantBody(role=role, queue=queue)
        return await self._call(wire.EnqueueGrant, "POST", "staged", "grants", body=body)

    async def revoke(self, role: str, queue: str | None = None) -> bool:
        """Revoke a grant. Returns False if there is none."""
        query = {"role": role, "queue": queue}
        return (await self._call(wire.EnqueueRevoked, "DELETE", "staged", "grants", query=query)).revoked
