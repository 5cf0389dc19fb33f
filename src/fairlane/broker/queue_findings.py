"""Findings about queues: lanes, groups, dead letters, workers and schedules that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from fairlane.broker.finding_text import (
    SHOWN_MAX,
    STUCK_SECONDS,
    count_text,
    finding,
    group_text,
    page_of,
    path_of,
    span_text,
    wait_text,
)
from fairlane.broker.messages import BY_HAND
from fairlane.broker.resource import Resource
from fairlane.model.moment import Moment, moment_or_none
from fairlane.wire.dead_letters import DlqErrorsQuery
from fairlane.wire.monitoring import Action, Finding

if TYPE_CHECKING:
    from fairlane.broker.dead_letters import DeadLetters
    from fairlane.broker.engine import TenantScope
    from fairlane.broker.queues import Queues
    from fairlane.broker.schedules import Schedules
    from fairlane.broker.workers import LostApp, Workers

_LANES_MAX: Final = 5000
_UNREAD_SECONDS: Final = 300
"""Age of the oldest message after which a group that pops nothing counts as stopped."""
_LOST_SECONDS: Final = 60
"""Time without a live worker after which an app counts as lost. A deployment replaces killed workers sooner."""
_LATE_SECONDS: Final = 60
_LATELY_SECONDS: Final = 300
_ERRORS_MAX: Final = 1000


class QueueFindings(Resource):
    def __init__(
        self,
        scope: TenantScope,
        queues: Queues,
        dead_letters: DeadLetters,
        schedules: Schedules,
        workers: Workers,
    ) -> None:
        super().__init__(scope)
        self._queues = queues
        self._all_dead_letters = dead_letters
        self._all_schedules = schedules
        self._all_workers = workers
        self.checks: list[Callable[[], Awaitable[list[Finding]]]] = [
            self._lanes,
            self._dead_letters,
            self._staged,
            self._workers_and_groups,
            self._unread,
            self._leases,
            self._schedules,
        ]

    async def _lanes(self) -> list[Finding]:
        names = {queue.id: queue.name for queue in await self._queues.all()}
        lanes = await self._store.statistics.stopped(list(names), limit=_LANES_MAX)
        counts = Counter((one.queue_id, one.group) for one in lanes)
        first = {(one.queue_id, one.group): one for one in reversed(lanes)}
        found = []
        for key, count in counts.most_common(SHOWN_MAX):
            one, queue = first[key], names[key[0]]
            more, verb = (f" and {count - 1} more", "are") if count > 1 else ("", "is")
            how = "parked" if one.parked else "blocked"
            why = f"; its message failed with {one.error!r:.200}" if one.error else ""
            page = page_of("queues", queue, group=one.group, state=how)
            if count == 1:
                page = page_of("queues", queue, "partitions", one.partition, group=one.group)
            label = "Resume the lane" if count == 1 else "Resume the lanes"
            which = {"partition": one.partition} if count == 1 else {"lanes": True}
            body = {"group": one.group, **which}
            sentence = f"Partition {one.partition!r} of {queue!r}{more} {verb} {how} for {group_text(one.group)}{why}."
            found.append(
                finding(
                    "lanes_stopped",
                    sentence,
                    page,
                    queue=queue,
                    group=one.group,
                    partition=one.partition if count == 1 else None,
                    count=count,
                    since=moment_or_none(one.failed_at),
                    action=Action(label=label, method="POST", path=path_of("queues", queue, "resume"), body=body),
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
            finding(
                "dead_letters_growing",
                f"{count_text(count, 'message')} of {queue!r} became "
                f"{'dead letters' if count > 1 else 'a dead letter'} in the last five minutes, "
                f"{'most of them ' if count > 1 else ''}with {most[queue]!r:.200}.",
                page_of("dead-letters", queue=queue),
                queue=queue,
                count=count,
                since=since,
            )
            for queue, count in died.most_common(SHOWN_MAX)
        ]

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
        return [_app_lost(one, now) for one in lost[:SHOWN_MAX]] + stopped

    async def _staged(self) -> list[Finding]:
        """Return queues whose staged messages are not moved."""
        now, staged = await self._store.now(), await self._store.staged.by_queue(self._tenant)
        return [
            finding(
                "staged_waiting",
                f"{wait_text(one.messages, 'enqueued message')} to be moved to {one.queue!r}, the oldest for "
                f"{span_text((now - one.oldest_at) / 1e6)}: the queue takes none, or the brokers are too slow.",
                page_of("queues", one.queue),
                queue=one.queue,
                count=one.messages,
                since=one.oldest_at,
            )
            for one in sorted(staged, key=lambda one: one.oldest_at)[:SHOWN_MAX]
            if now - one.oldest_at > STUCK_SECONDS * 1_000_000
        ]

    async def _groups(self) -> list[Finding]:
        """Return groups with old messages that are not popped, except groups whose lanes are all stopped."""
        now, idle = await self._store.now(), []
        for queue, one in await self._scope.statistics.groups():
            options = queue.options
            unread_micros = (_UNREAD_SECONDS + options.delay_seconds + options.window_seconds) * 1_000_000
            if one.oldest_at is None or one.leases or one.group.subscription.look:
                continue
            if one.blocked + one.parked >= one.lagging:
                continue
            if now - max(one.oldest_at, one.taken_at or 0) > unread_micros:
                idle.append((one.oldest_at, queue, one))
        paused = await self._store.pauses.queues([queue.id for _, queue, _ in idle])
        return [
            finding(
                "group_stopped",
                f"T{group_text(one.group.name)[1:]} of {queue.name!r} has stopped: {wait_text(one.lag, 'message')}, "
                f"the oldest for {span_text((now - oldest_at) / 1e6)}, and "
                f"{'the queue is paused' if queue.id in paused else 'no consumer takes them'}.",
                page_of("queues", queue.name, group=one.group.name),
                queue=queue.name,
                group=one.group.name,
                count=one.lag,
                since=Moment(oldest_at),
            )
            for oldest_at, queue, one in sorted(idle, key=lambda entry: entry[0])[:SHOWN_MAX]
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
            finding(
                "queue_unread",
                f"Nobody has ever read {name!r}: {wait_text(count, 'message')}, the oldest for "
                f"{span_text((now - oldest_at) / 1e6)}. Start a consumer, or check if a producer uses a wrong name.",
                page_of("queues", name),
                queue=name,
                count=count,
                since=Moment(oldest_at),
            )
            for oldest_at, name, count in sorted(old)[:SHOWN_MAX]
        ]

    async def _leases(self) -> list[Finding]:
        """Return groups with lanes whose leases expire repeatedly."""
        losing = [one for one in await self._scope.statistics.groups() if one[1].losing]
        return [
            finding(
                "leases_lost",
                f"Leases of {count_text(one.losing, 'lane')} of {queue.name!r} expire again and again for "
                f"{group_text(one.group.name)}: handlers take longer than the lease, or their workers die.",
                page_of("queues", queue.name, group=one.group.name),
                queue=queue.name,
                group=one.group.name,
                count=one.losing,
            )
            for queue, one in sorted(losing, key=lambda one: -one[1].losing)[:SHOWN_MAX]
        ]

    async def _schedules(self) -> list[Finding]:
        late_before = await self._store.now() - _LATE_SECONDS * 1_000_000
        return [
            finding(
                "schedule_late",
                f"The schedule {one.name!r} should have ticked and did not"
                + (f": its message is refused: {one.refused}." if one.refused else "."),
                page_of("schedules"),
                queue=one.queue,
                since=one.next_at,
                action=Action(label="Run it now", method="POST", path=path_of("schedules", one.name, "run")),
            )
            for one in await self._all_schedules.late(late_before, limit=SHOWN_MAX)
        ]


def _app_lost(app: LostApp, now: int) -> Finding:
    last, count = app.workers[0], len(app.workers)
    ago = span_text((now - last.seen_at) / 1e6)
    held = f" They held {count_text(app.in_hand, 'message')}." if app.in_hand else ""
    sentence = (
        f"The app {app.name!r} lost {'its only worker' if count == 1 else f'its {count} workers'}: "
        f"process {last.pid} on {last.hostname!r} was the last, and reported {ago} ago.{held}"
    )
    return finding("app_lost", sentence, page_of("workers"), app=app.name, count=count, since=last.seen_at)
