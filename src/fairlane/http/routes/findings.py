"""Findings: what is worth acting on."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http import scopes
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.model.moment import Moment
from fairlane.runtime.clock import wall_clock
from fairlane.wire.findings import FindingList

routes = Routes("status")


@routes.get("/api/v1/findings", needs="status", each=True, live=True)
async def findings(broker: Broker, caller: Caller) -> FindingList:
    """What is worth acting on, the worst first: each in a sentence, with the page to look at and what may mend it."""
    found = [one for one in await broker.findings.list() if scopes.allows(caller, "status", one.queue)]
    return FindingList(findings=found, timestamp=Moment(wall_clock()))
