"""Monitoring: status of the broker, findings, cells and history."""

from __future__ import annotations

from fairlane.client.resource import ClientResource, decode
from fairlane.client.transport import Call
from fairlane.errors import FairlaneError
from fairlane.model.names import name_or_none
from fairlane.wire import monitoring as wire
from fairlane.wire.cells import CellList, CellView
from fairlane.wire.queues import Overview
from fairlane.wire.status import Health, JournalReport


class Findings(ClientResource):
    async def all(self) -> list[wire.Finding]:
        """Return the current health findings, the most severe first."""
        return (await self._call(wire.FindingList, "GET", "findings")).findings

    async def snooze(self, key: str, *, seconds: int | None = None) -> wire.Finding:
        """Snooze a finding for `seconds`, or until it changes. Raises NotFound."""
        body = wire.SnoozeBody(key=key, seconds=seconds)
        return await self._call(wire.Finding, "POST", "findings", "snooze", body=body)

    async def unsnooze(self, key: str) -> bool:
        """End the snooze of a finding. Returns False if it is not snoozed."""
        return (await self._call(wire.Unsnoozed, "DELETE", "findings", "snooze", query={"key": key})).deleted


class Cells(ClientResource):
    async def all(self) -> list[CellView]:
        """Return the cells with their queues, bytes and messages per second. Those that do not answer have an error."""
        return (await self._call(CellList, "GET", "cells")).cells


class History(ClientResource):
    async def show(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        minutes: int = 60,
        until: str | None = None,
    ) -> wire.History:
        """Return rates and latencies of the last minutes, for one queue or all, and the lag of a group.

        `until` ends the time range earlier, as 2026-01-31T12:00:00Z. Raises NotFound.
        """
        names = {"queue": name_or_none("queue", queue), "group": name_or_none("group", group)}
        return await self._call(wire.History, "GET", "history", query={**names, "minutes": minutes, "until": until})


class Status(ClientResource):
    async def health(self) -> Health:
        """Return version, store and uptime of the broker that answers.

        Its `status` is `unhealthy` while the store is unavailable. Raises Unavailable if no broker answers.
        """
        answer = await self._transport.exchange(Call("GET", "/health", self._transport.own_key, takes=_is_health))
        if answer.status >= 300 and not _is_health(answer.body):
            raise answer.error()
        return decode(answer.body, Health)

    async def overview(self) -> Overview:
        """Return totals over all queues."""
        return await self._call(Overview, "GET", "resources", "overview")

    async def journal(self) -> JournalReport:
        """Return the operations that wait in the journal of the broker that answers."""
        return await self._call(JournalReport, "GET", "status", "buffers")

    async def system(self) -> wire.SystemReport:
        """Return a report of the broker that answers: process, store, journal and settings."""
        return await self._call(wire.SystemReport, "GET", "system")


def _is_health(body: bytes) -> bool:
    try:
        decode(body, Health)
    except FairlaneError:  # from a proxy, or an error of the broker
        return False
    return True
