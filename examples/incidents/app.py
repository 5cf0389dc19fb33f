"""The worker of the example: it runs the command that incidents.fairlane maps webhooks to."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlane import App, Context


class NewIncident(msgspec.Struct):
    title: str
    severity: Literal["critical", "high"]
    source: str
    external_id: str


class Created(msgspec.Struct):
    incident: str
    title: str
    severity: str


app = App("incidents")
incidents: dict[str, Created] = {}
"""Incidents by the id of their alert. A real service uses a database. The same alert twice is one incident."""


@app.command("Incident.CreateIncident")
async def create_incident(given: NewIncident, ctx: Context) -> Created:
    created = incidents.get(given.external_id)
    if created is None:
        created = Created(f"INC-{len(incidents) + 1}", given.title, given.severity)
        incidents[given.external_id] = created
        ctx.log.info("%s created: %s (%s)", created.incident, created.title, created.severity)
    return created
