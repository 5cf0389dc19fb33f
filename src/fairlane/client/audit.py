"""The audit log: read it, and verify that it is complete."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.wire.audit import AuditLine, AuditPage, AuditVerified


class Audit(ClientResource):
    async def page(self, *, before: int | None = None, limit: int = 100) -> list[AuditLine]:
        """Return the newest entries first, only those with a number below `before` if it is given."""
        return (await self._call(AuditPage, "GET", "audit", query={"before": before, "limit": limit})).entries

    async def verify(self) -> AuditVerified:
        """Check the hash chain of the log, which shows whether an entry was changed or is missing."""
        return await self._call(AuditVerified, "GET", "audit", "verify")
