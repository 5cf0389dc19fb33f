"""The audit log: read it, and verify that it is complete."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.wire.audit import AuditLine, AuditPage, AuditVerified


class Audit(ClientResource):
    async def page(self, *, before: int | None = None, limit: int = 100) -> list[AuditLine]:
        """Return entries before a number, or the latest, newest first."""
        return (await self._call(AuditPage, "GET", "audit", query={"before": before, "limit": limit})).entries

    async def verify(self) -> AuditVerified:
        """Verify that no entry was changed or is missing."""
        return await self._call(AuditVerified, "GET", "audit", "verify")
