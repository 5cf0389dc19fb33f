"""Findings: what is worth acting on."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.wire.findings import Finding, FindingList


class Findings(Part):
    async def list(self) -> List[Finding]:
        """What is worth acting on now, in sentences, the worst first."""
        return (await self._ask(FindingList, "GET", "findings")).findings
