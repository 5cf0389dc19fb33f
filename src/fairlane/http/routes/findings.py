"""Findings: what is worth acting on."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.wire.findings import FindingList

routes = Routes("status")


@routes.get("/api/v1/findings", live=True)
async def findings(broker: Broker) -> FindingList:
    """What is worth acting on, the worst first: each in a sentence, with the page to look at and what may mend it."""
    return await broker.findings.list()
