"""Findings: problems that need attention, each as a sentence, with a dashboard page and an action that may fix it.

Nothing is checked until findings are requested, and checks read index entries of problems only. Counts over all lanes
and facts about the whole database are cached for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlane.broker.cells import cell_findings, missing_cells
from fairlane.broker.finding_text import (
    SHOWN_MAX,
    STUCK_SECONDS,
    count_text,
    finding,
    page_of,
    path_of,
    span_text,
    wait_text,
)
from fairlane.broker.flags import PUSHES_PAUSED
from fairlane.broker.queue_findings import QueueFindings
from fairlane.broker.resource import Resource
from fairlane.broker.snoozes import Snoozes
from fairlane.errors import FairlaneError
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import DEFAULT_TENANT
from fairlane.runtime.clock import wall_clock
from fairlane.wire.monitoring import Action, Finding

if TYPE_CHECKING:
    from fairlane.broker.engine import TenantScope
    from fairlane.broker.status import Status
    from fairlane.broker.webhooks import Webhooks

_ANSWER_SECONDS: Final = 3.0
_REPORT_SECONDS: Final = 30.0
_PINNED_SECONDS: Final = 600
_DEAD_ROWS_MIN: Final = 1_000_000
_DISK_SHARE: Final = 20
_FLOOD_SHARE: Final = 0.8
"""Share of all messages from which a tenant is named, if pushes wait for their turn."""
_RESUME_PUSHES: Final = {"pushes": False}
_WORST: Final = ("critical", "warning", "notice")


class Findings(Resource):
    def __init__(self, scope: TenantScope, status: Status, webhooks: Webhooks, queues: QueueFindings) -> None:
        super().__init__(scope)
        self._status = status
        self._all_webhooks = webhooks
        self._of_queues = queues
        self._report: dict[str, Any] = {}
        self._report_until = 0.0
        self._counted: list[Finding] = []
        """Findings of the last check that the store answered in time."""
        self._counted_at: float | None = None
        self._first_seen: dict[str, Moment] = {}
        """Time when this broker first reported each current finding, by key."""
        self.snoozes = Snoozes(scope)

    async def all(self) -> list[Finding]:
        """Return the current findings, most severe first."""
        found = [*self._journal(), *await self._webhooks()]
        readable = not any(one.kind == "store_away" for one in found)
        if readable:
            found += await self._stored()
        found += cell_findings(self._store)
        now, seen = Moment(wall_clock()), self._first_seen
        self._first_seen = {one.key: seen.get(one.key, now) for one in found}
        found = [
            one if one.since is not None else msgspec.structs.replace(one, since=self._first_seen[one.key])
            for one in found
        ]
        if readable:
            found = await self.snoozes.apply(found, seen.keys() - self._first_seen.keys())
        found.sort(key=lambda one: (_WORST.index(one.severity), one.kind, one.since or 0))
        return found

    async def snooze(self, key: str, *, seconds: float | None, caller: str) -> Finding:
        """Snooze a finding for some seconds, or until it changes with None. Raises NotFound."""
        return await self.snoozes.add(key, await self.all(), seconds=seconds, caller=caller)

    async def unsnooze(self, key: str) -> bool:
        """End a snooze. Returns False if the finding is not snoozed."""
        return await self._store.snoozes.end(self._tenant, key)

    async def _stored(self) -> list[Finding]:
        """Return the findings read from the store, or one that says why the store cannot be read."""
        operator = self._tenant == DEFAULT_TENANT
        checks: list[Callable[[], Awaitable[list[Finding]]]] = [
            *self._of_queues.checks,
            self._operations,
            *([self._database, self._tenants] if operator else ()),
        ]
        counted: list[Finding] = []
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                for check in checks:
                    counted += await check()
        except (FairlaneError, TimeoutError) as error:
            return counted if 0 in missing_cells(self._store) else await self._uncounted(error)
        self._counted, self._counted_at = counted, time.monotonic()
        return counted

    async def _uncounted(self, error: Exception) -> list[Finding]:
        """Return why the store could not be checked. A slow store is not unavailable, and its last findings stay."""
        if isinstance(error, TimeoutError) and await self._status.healthy():
            known = self._counted_at
            rest = "" if known is None else f" The rest was counted {span_text(time.monotonic() - known)} ago."
            sentence = f"Problems could not be counted in {_ANSWER_SECONDS:g} s: the store is slow.{rest}"
            return [finding("store_slow", sentence, page_of("system")), *self._counted]
        why = self._engine.write_router.health.why if isinstance(error, TimeoutError) else str(error)
        return [_store_away(f"The store is away: {why or 'it does not answer in time'}.")]

    async def _operations(self) -> list[Finding]:
        waiting, failed, stuck = await self._status.operations(stuck_seconds=STUCK_SECONDS)
        found = []
        if failed:
            sentence = f"{count_text(failed, 'operation')} failed: accepted, and not applied. Retry or discard them."
            found.append(finding("operations_failed", sentence, page_of("operations"), count=failed))
        if stuck:
            sentence = (
                f"{wait_text(waiting, 'operation')}, and {count_text(stuck, 'backlog')} did not move for a minute."
            )
            found.append(finding("operations_stuck", sentence, page_of("operations"), count=waiting))
        return found

    async def _database(self) -> list[Finding]:
        if time.monotonic() >= self._report_until:
            self._report = await self._store.report()
            self._report_until = time.monotonic() + _REPORT_SECONDS
        found = []
        free, size = self._report.get("diskFreeBytes", 1), self._report.get("diskBytes", 1)
        if free < size / _DISK_SHARE:
            sentence = f"The disk of the store is nearly full: {free // 1_000_000} MB of {size // 1_000_000} are free."
            found.append(finding("disk_full", sentence, page_of("system")))
        oldest = self._report.get("oldestTransaction")
        if oldest and oldest["seconds"] > _PINNED_SECONDS:
            who = f"{oldest['application'] or 'an unnamed application'!r:.80} (pid {oldest['pid']}, {oldest['state']})"
            harm = "old versions of rows may have to stay while it lasts"
            sentence = f"A transaction of {who} has been open for {span_text(oldest['seconds'])} in PostgreSQL: {harm}."
            found.append(finding("snapshot_pinned", sentence, page_of("system")))
        for one in self._report.get("tables", ()):
            if one["deadRows"] > max(_DEAD_ROWS_MIN, 5 * one["liveRows"]):
                sentence = f"The table {one['name']} has {one['deadRows']} dead rows: autovacuum does not keep up."
                found.append(finding("bloat", sentence, page_of("system"), count=one["deadRows"]))
        return found

    async def _tenants(self) -> list[Finding]:
        """Return the tenant that sends most of all messages while others wait for their turn."""
        if not self._engine.admission.pushes.takes_turns:
            return []
        pushed = await self._engine.tenants.pushed()
        most = max(pushed, key=lambda name: pushed[name].share, default="")
        if not most or pushed[most].share < _FLOOD_SHARE:
            return []
        share, rate = pushed[most].share, pushed[most].messages_per_second
        sentence = (
            f"The tenant {most!r} sends {share:.0%} of all messages, {rate:.0f} a second, and the pushes of others "
            "wait for their turn. A quota messagesPerSecond limits it."
        )
        return [finding("tenant_floods", sentence, page_of("tenants"), tenant=most)]

    def _journal(self) -> list[Finding]:
        status = self._status.journal()
        if status is None:
            return []
        if not status.store_up:
            waiting = f"; {wait_text(status.messages, 'message')} in the journal" if status.messages else ""
            why = f": {status.why_not}" if status.why_not else ""
            away = f"The store is away for {span_text(status.away_seconds)}{waiting}{why}."
            return [_store_away(away, since=wall_clock() - int(status.away_seconds * 1e6))]
        if status.messages and (status.oldest_seconds or 0) > STUCK_SECONDS:
            paused = PUSHES_PAUSED in self._engine.flags.on
            why = "because pushes are paused" if paused else "although the store answers"
            if status.why_not and not paused:
                why = f"{why}; its last error was: {status.why_not}"
            resume = Action(label="Resume pushes", method="POST", path=path_of("pauses"), body=_RESUME_PUSHES)
            oldest = f"the oldest for {span_text(status.oldest_seconds or 0)}"
            sentence = f"{wait_text(status.messages, 'message')} in the journal, {oldest}, {why.rstrip('.')}."
            found = finding("journal_waiting", sentence, page_of("operations"), count=status.messages)
            return [msgspec.structs.replace(found, severity="warning", action=resume) if paused else found]
        return []

    async def _webhooks(self) -> list[Finding]:
        found = []
        for one in await self._all_webhooks.all():
            since, page, count = one.last_refused_at, page_of("hooks"), one.refused_lately
            if not one.available:
                sentence = f"The webhook {one.name!r} answers 503: its secret is missing here, or too short."
                found.append(finding("hook_unavailable", sentence, page, since=since))
            elif count:
                sentence = f"{count_text(count, 'request')} to the webhook {one.name!r} had no valid signature lately."
                found.append(finding("hook_refused", sentence, page, since=since, count=count))
        return found[:SHOWN_MAX]


def _store_away(sentence: str, since: int | None = None) -> Finding:
    return finding("store_away", sentence, page_of("system"), since=moment_or_none(since))
