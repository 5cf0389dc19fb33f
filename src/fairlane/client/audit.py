"""The audit log: read it, and verify that it is complete."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.wire.audit import AuditLine, AuditPage, AuditVerified


class Audit(ClientResource):
    async def page(self, *, before: int | None = None, limit: int = 100, search: str | None = None) -> list[AuditLine]:
        """Return the newest entries first, only those with a number below `before` if it is given.

        With `search`, returns those whose caller, action or target contains this text.
        """
        query = {"before": before, "limit": limit, "search": search}
        return (await self._call(AuditPage, "GET", "audit", query=query)).entries

    async def verify(self) -> AuditVerified:
        """Check the hash chain of the log, which shows whether an entry was changed or is missing."""
        return await self._call(AuditVerified, "GET", "audit", "verify")
