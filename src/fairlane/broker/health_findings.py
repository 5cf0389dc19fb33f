"""Findings: problems that need attention, each as a sentence, with a dashboard page and an action that may fix it.

Nothing is checked until findings are requested, and checks read index entries of problems only. Counts over all lanes
and facts about the whole database are cached for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from fairlane.broker.cells import cells_away, missing_cells
from fairlane.broker.finding_text import count_text, group_text, span_text, wait_text
from fairlane.broker.flags import PUSHES_PAUSED
from fairlane.broker.messages import BY_HAND
from fairlane.broker.resource import Resource
from fairlane.errors import FairlaneError
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import DEFAULT_TENANT
from fairlane.runtime.clock import wall_clock
from fairlane.wire.dead_letters import DlqErrorsQuery
from fairlane.wire.monitoring import Action, Finding, Severity

if TYPE_CHECKING:
    from fairlane.broker.dead_letters import DeadLetters
    from fairlane.broker.engine import TenantScope
    from fairlane.broker.queues import Queues
    from fairlane.broker.schedules import Schedules
    from fairlane.broker.status import Status
    from fairlane.broker.webhooks import Webhooks
    from fairlane.broker.workers import LostApp, Workers

_ANSWER_SECONDS: Final = 3.0
_LANES_MAX: Final = 5000
_UNREAD_SECONDS: Final = 300
"""Age of the oldest message after which a group that pops nothing counts as stopped."""
_STUCK_SECONDS: Final = 60
_LOST_SECONDS: Final = 60
"""Time without a live worker after which an app counts as lost. A deployment replaces killed workers sooner."""
_LATE_SECONDS: Final = 60
_LATELY_SECONDS: Final = 300
_ERRORS_MAX: Final = 1000
_REPORT_SECONDS: Final = 30.0
_PINNED_SECONDS: Final = 600
_DEAD_ROWS_MIN: Final = 1_000_000
_DISK_SHARE: Final = 20
_SHOWN_MAX: Final = 10
"""Largest number of findings of one kind. The rest is only counted."""
_RESUME_PUSHES: Final = {"pushes": False}
_WORST: Final = ("critical", "warning", "notice")
_CRITICAL: Final = ("lanes_stopped", "app_lost", "operations_failed", "disk_full", "hook_unavailable", "store_away")
_SEVERITIES: Final[dict[str, Severity]] = {**dict.fromkeys(_CRITICAL, "critical"), "bloat": "notice"}
"""Severity by the kind of finding. The default is warning."""


class Findings(Resource):
    def __init__(
        self,
        scope: TenantScope,
        status: Status,
        queues: Queues,
        dead_letters: DeadLetters,
        schedules: Schedules,
        webhooks: Webhooks,
        workers: Workers,
    ) -> None:
        super().__init__(scope)
        self._status = status
        self._queues = queues
        self._all_dead_letters = dead_letters
        self._all_schedules = schedules
        self._all_webhooks = webhooks
        self._all_workers = workers
        self._report: dict[str, Any] = {}
        self._report_until = 0.0
        self._counted: list[Finding] = []
        """Findings of the last check that the store answered in time."""
        self._counted_at: float | None = None
        self._first_seen: dict[tuple[str | None, ...], Moment] = {}
        """Time when this broker first reported each current finding."""

    async def all(self) -> list[Finding]:
        """Return the current findings, most severe first."""
        found = [*self._journal(), *await self._webhooks()]
        if not any(one.kind == "store_away" for one in found):
            found += await self._stored()
        found += cells_away(self._store)
        now, keys = Moment(wall_clock()), list(map(_key, found))
        self._first_seen = {key: self._first_seen.get(key, now) for key in keys}
        found = [
            one if one.since is not None else msgspec.structs.replace(one, since=self._first_seen[key])
            for one, key in zip(found, keys, strict=True)
        ]
        found.sort(key=lambda one: (_WORST.index(one.severity), one.kind, one.since or 0))
        return found

    async def _stored(self) -> list[Finding]:
        """Return the findings read from the store, or one that says why the store cannot be read."""
        operator = self._tenant == DEFAULT_TENANT
        looks: list[Callable[[], Awaitable[list[Finding]]]] = [
            self._lanes,
            self._dead_letters,
            self._operations,
            self._staged,
            self._workers_and_groups,
            self._unread,
            self._leases,
            self._schedules,
            *([self._database] if operator else ()),
        ]
        counted: list[Finding] = []
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                for look in looks:
                    counted += await look()
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
            return [_finding("store_slow", sentence, _page("system")), *self._counted]
        why = self._engine.write_router.health.why if isinstance(error, TimeoutError) else str(error)
        return [_store_away(f"The store is away: {why or 'it does not answer in time'}.")]

    async def _lanes(self) -> list[Finding]:
        names = {queue.id: queue.name for queue in await self._queues.all()}
        lanes = await self._store.statistics.stopped(list(names), limit=_LANES_MAX)
        counts = Counter((one.queue_id, one.group) for one in lanes)
        first = {(one.queue_id, one.group): one for one in reversed(lanes)}
        found = []
        for key, count in counts.most_common(_SHOWN_MAX):
            one, queue = first[key], names[key[0]]
            more, verb = (f" and {count - 1} more", "are") if count > 1 else ("", "is")
            how = "parked" if one.parked else "blocked"
            why = f"; its message failed with {one.error!r:.200}" if one.error else ""
            page = _page("queues", queue, group=one.group, state=how)
            if count == 1:
                page = _page("queues", queue, "partitions", one.partition, group=one.group)
            label = "Resume the lane" if count == 1 else "Resume the lanes"
            which = {"partition": one.partition} if count == 1 else {"lanes": True}
            body = {"group": one.group, **which}
            sentence = f"Partition {one.partition!r} of {queue!r}{more} {verb} {how} for {group_text(one.group)}{why}."
            found.append(
                _finding(
                    "lanes_stopped",
                    sentence,
                    page,
                    queue=queue,
                    group=one.group,
                    partition=one.partition if count == 1 else None,
                    count=count,
                    since=moment_or_none(one.failed_at),
                    action=Action(label=label, method="POST", path=_path("queues", queue, "resume"), body=body),
                )
            )
        return found

    async def _dead_letters(self) -> list[Finding]:
        """Return the queues with recent open dead letters. Messages that were dead-lettered by hand do not count."""
        since = Moment(await self._store.now() - _LATELY_SECONDS * 1_000_000)
        query = DlqErrorsQuery(since=since, replayed=False, limit=_ERRORS_MAX)
        errors = [one for one in (await self._all_dead_letters.errors(query)).errors if one.error != BY_HAND]
        died: Counter[str] = Counter()
        for one in errors:
            died[one.queue] += one.count
        most = {one.queue: one.error for one in reversed(errors)}
        return [
            _finding(
                "dead_letters_growing",
                f"{count_text(count, 'message')} of {queue!r} became "
                f"{'dead letters' if count > 1 else 'a dead letter'} in the last five minutes, "
                f"{'most of them ' if count > 1 else ''}with {most[queue]!r:.200}.",
                _page("dead-letters", queue=queue),
                queue=queue,
                count=count,
                since=since,
            )
            for queue, count in died.most_common(_SHOWN_MAX)
        ]

    async def _operations(self) -> list[Finding]:
        waiting, failed, stuck = await self._status.operations(stuck_seconds=_STUCK_SECONDS)
        found = []
        if failed:
            sentence = f"{count_text(failed, 'operation')} failed: accepted, and not applied. Retry or discard them."
            found.append(_finding("operations_failed", sentence, _page("operations"), count=failed))
        if stuck:
            sentence = (
                f"{wait_text(waiting, 'operation')}, and {count_text(stuck, 'backlog')} did not move for a minute."
            )
            found.append(_finding("operations_stuck", sentence, _page("operations"), count=waiting))
        return found

    async def _workers_and_groups(self) -> list[Finding]:
        """Return apps that lost all their workers, and groups that stopped for another reason."""
        now = await self._store.now()
        lost = [
            one
            for one in await self._all_workers.lost_apps()
            if now - one.workers[0].seen_at > _LOST_SECONDS * 1_000_000
        ]
        theirs = {pair for one in lost for pair in one.groups}
        stopped = [one for one in await self._groups() if (one.queue, one.group) not in theirs]
        return [_app_lost(one, now) for one in lost[:_SHOWN_MAX]] + stopped

    async def _staged(self) -> list[Finding]:
        """Return queues whose staged messages are not moved."""
        now, staged = await self._store.now(), await self._store.staged.by_queue(self._tenant)
        return [
            _finding(
                "staged_waiting",
                f"{wait_text(one.messages, 'enqueued message')} to be moved to {one.queue!r}, the oldest for "
                f"{span_text((now - one.oldest_at) / 1e6)}: the queue takes none, or the brokers are too slow.",
                _page("queues", one.queue),
                queue=one.queue,
                count=one.messages,
                since=one.oldest_at,
            )
            for one in sorted(staged, key=lambda one: one.oldest_at)[:_SHOWN_MAX]
            if now - one.oldest_at > _STUCK_SECONDS * 1_000_000
        ]

    async def _groups(self) -> list[Finding]:
        """Return groups with old messages that are not popped."""
        now, idle = await self._store.now(), []
        for queue, one in await self._scope.statistics.groups():
            options = queue.options
            unread_micros = (_UNREAD_SECONDS + options.delay_seconds + options.window_seconds) * 1_000_000
            if one.oldest_at is None or one.leases or one.group.subscription.look:
                continue
            if now - max(one.oldest_at, one.taken_at or 0) > unread_micros:
                idle.append((one.oldest_at, queue, one))
        return [
            _finding(
                "group_stopped",
                f"T{group_text(one.group.name)[1:]} of {queue.name!r} has stopped: {wait_text(one.lag, 'message')}, "
                f"the oldest since {span_text((now - oldest_at) / 1e6)}, and no consumer takes them.",
                _page("queues", queue.name, group=one.group.name),
                queue=queue.name,
                group=one.group.name,
                count=one.lag,
                since=Moment(oldest_at),
            )
            for oldest_at, queue, one in sorted(idle, key=lambda entry: entry[0])[:_SHOWN_MAX]
        ]

    async def _unread(self) -> list[Finding]:
        """Return queues with old messages that no group ever read, except queues of dead letters."""
        now, old = await self._store.now(), []
        counted = await self._scope.statistics.queues()
        groups = [one for _, one in await self._scope.statistics.groups()]
        oldest = await self._scope.statistics.oldest(counted, groups)
        read = {one.group.queue_id for one in groups}
        for_people = {queue.options.dead_letter_queue for queue, _ in counted}
        for queue, stats in counted:
            oldest_at, options = oldest.get(queue.id), queue.options
            unread_micros = (_UNREAD_SECONDS + options.delay_seconds + options.window_seconds) * 1_000_000
            if queue.id in read or queue.name in for_people or oldest_at is None or now - oldest_at <= unread_micros:
                continue
            old.append((oldest_at, queue.name, stats.unfinished))
        return [
            _finding(
                "queue_unread",
                f"Nobody has ever read {name!r}: {wait_text(count, 'message')}, the oldest since "
                f"{span_text((now - oldest_at) / 1e6)}. Start a consumer, or check if a producer uses a wrong name.",
                _page("queues", name),
                queue=name,
                count=count,
                since=Moment(oldest_at),
            )
            for oldest_at, name, count in sorted(old)[:_SHOWN_MAX]
        ]

    async def _leases(self) -> list[Finding]:
        """Return groups with lanes whose leases expire repeatedly."""
        losing = [one for one in await self._scope.statistics.groups() if one[1].losing]
        return [
            _finding(
                "leases_lost",
                f"Leases of {count_text(one.losing, 'lane')} of {queue.name!r} expire again and again for "
                f"{group_text(one.group.name)}: handlers take longer than the lease, or their workers die.",
                _page("queues", queue.name, group=one.group.name),
                queue=queue.name,
                group=one.group.name,
                count=one.losing,
            )
            for queue, one in sorted(losing, key=lambda one: -one[1].losing)[:_SHOWN_MAX]
        ]

    async def _schedules(self) -> list[Finding]:
        late_before = await self._store.now() - _LATE_SECONDS * 1_000_000
        return [
            _finding(
                "schedule_late",
                f"The schedule {one.name!r} should have ticked and did not"
                + (f": its message is refused: {one.refused}." if one.refused else "."),
                _page("schedules"),
                queue=one.queue,
                since=one.next_at,
                action=Action(label="Run it now", method="POST", path=_path("schedules", one.name, "run")),
            )
            for one in await self._all_schedules.late(late_before, limit=_SHOWN_MAX)
        ]

    async def _database(self) -> list[Finding]:
        if time.monotonic() >= self._report_until:
            self._report = await self._store.report()
            self._report_until = time.monotonic() + _REPORT_SECONDS
        found = []
        free, size = self._report.get("diskFreeBytes", 1), self._report.get("diskBytes", 1)
        if free < size / _DISK_SHARE:
            sentence = f"The disk of the store is nearly full: {free // 1_000_000} MB of {size // 1_000_000} are free."
            found.append(_finding("disk_full", sentence, _page("system")))
        oldest = self._report.get("oldestTransaction")
        if oldest and oldest["seconds"] > _PINNED_SECONDS:
            who = f"{oldest['application'] or 'an unnamed application'!r:.80} (pid {oldest['pid']}, {oldest['state']})"
            harm = "old versions of rows may have to stay while it lasts"
            sentence = f"A transaction of {who} has been open for {span_text(oldest['seconds'])} in PostgreSQL: {harm}."
            found.append(_finding("snapshot_pinned", sentence, _page("system")))
        for one in self._report.get("tables", ()):
            if one["deadRows"] > max(_DEAD_ROWS_MIN, 5 * one["liveRows"]):
                sentence = f"The table {one['name']} has {one['deadRows']} dead rows: autovacuum does not keep up."
                found.append(_finding("bloat", sentence, _page("system"), count=one["deadRows"]))
        return found

    def _journal(self) -> list[Finding]:
        status = self._status.journal()
        if status is None:
            return []
        if not status.store_up:
            waiting = f"; {wait_text(status.messages, 'message')} in the journal" if status.messages else ""
            why = f": {status.why_not}" if status.why_not else ""
            away = f"The store is away for {span_text(status.away_seconds)}{waiting}{why}."
            return [_store_away(away, since=wall_clock() - int(status.away_seconds * 1e6))]
        if status.messages and (status.oldest_seconds or 0) > _STUCK_SECONDS:
            paused = PUSHES_PAUSED in self._engine.flags.on
            why = "because pushes are paused" if paused else "although the store answers"
            resume = Action(label="Resume pushes", method="POST", path=_path("pauses"), body=_RESUME_PUSHES)
            oldest = f"the oldest for {span_text(status.oldest_seconds or 0)}"
            sentence = f"{wait_text(status.messages, 'message')} in the journal, {oldest}, {why}."
            action = resume if paused else None
            return [_finding("journal_waiting", sentence, _page("operations"), count=status.messages, action=action)]
        return []

    async def _webhooks(self) -> list[Finding]:
        found = []
        for one in await self._all_webhooks.all():
            since, page, count = one.last_refused_at, _page("hooks"), one.refused_lately
            if not one.available:
                sentence = f"The webhook {one.name!r} answers 503: its secret is missing here, or too short."
                found.append(_finding("hook_unavailable", sentence, page, since=since))
            elif count:
                sentence = f"{count_text(count, 'request')} to the webhook {one.name!r} had no valid signature lately."
                found.append(_finding("hook_refused", sentence, page, since=since, count=count))
        return found[:_SHOWN_MAX]


def _key(one: Finding) -> tuple[str | None, ...]:
    return one.kind, one.queue, one.group, one.partition, one.app


def _store_away(sentence: str, since: int | None = None) -> Finding:
    return _finding("store_away", sentence, _page("system"), since=moment_or_none(since))


def _app_lost(app: LostApp, now: int) -> Finding:
    last, count = app.workers[0], len(app.workers)
    ago = span_text((now - last.seen_at) / 1e6)
    held = f" They held {count_text(app.in_hand, 'message')}." if app.in_hand else ""
    sentence = (
        f"The app {app.name!r} lost {'its only worker' if count == 1 else f'all its {count} workers'}: "
        f"process {last.pid} on {last.hostname!r} was the last, and reported {ago} ago.{held}"
    )
    return _finding("app_lost", sentence, _page("workers"), app=app.name, count=count, since=last.seen_at)


def _finding(kind: str, sentence: str, page: str, **more: Any) -> Finding:
    return Finding(kind=kind, severity=_SEVERITIES.get(kind, "warning"), sentence=sentence, page=page, **more)


def _page(*parts: str, **query: str) -> str:
    asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return "".join(f"/{quote(part, safe='')}" for part in parts) + asked


def _path(*parts: str) -> str:
    return "/api/v1" + _page(*parts)
