"""The audit log: who did what, and whether the log is whole."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.wire.audit import AuditLine, AuditPage, AuditVerified


class Audit(Part):
    async def list(self, *, before: int | None = None, limit: int = 100) -> List[AuditLine]:
        """Entries below a number, or the last, newest first."""
        return (await self._ask(AuditPage, "GET", "audit", query={"before": before, "limit": limit})).entries

    async def verify(self) -> AuditVerified:
        """Whether every entry is as it was written, and none is missing."""
        return await self._ask(AuditVerified, "GET", "audit", "verify")
