"""Pops of several groups in one call of `fairlane.pop_groups`, with bytes from the tail cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
import msgspec

from fairlane.errors import BrokerFailed, OutcomeUnknown, Unavailable, after_commit
from fairlane.model.ids import PartitionId
from fairlane.model.segment import Segment
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.store.contract.values import ClaimedLane, PopCall, PopClaim
from fairlane.store.postgres.binary import sent_numbers, sent_time
from fairlane.store.postgres.connection import MINUS_INFINITY, Database
from fairlane.store.postgres.scan_floors import ScanFloors
from fairlane.store.statements import load
from fairlane.store.tail_cache import Tail, TailCache, listed

if TYPE_CHECKING:
    from fairlane.store.postgres.pop import AckStatement

SQL = load("fairlane.store.postgres", "messages.sql")

_SPECIAL_SECONDS = 1.0
"""Time for which a group that needed `fairlane.pop` goes there at once."""
_SPECIAL_MAX = 10_000


class GroupPop(NamedTuple):
    """The result for one group: at most one lane per claim, in the order of the claims."""

    lanes: list[ClaimedLane]
    popped_at: int
    next_at: int | None


_Popped = GroupPop | OutcomeUnknown | None
"""The result for a group, its error, or None if it needs `fairlane.pop`."""


class _Part(msgspec.Struct):
    """The claims of one group in a call, from one or more pops."""

    call: PopCall
    claims: list[PopClaim] = []
    wants_due: bool = False

    def takes(self, call: PopCall) -> bool:
        """Return True if another pop of the group can be added."""
        mine = self.call
        return (call.auto_ack, call.lease_seconds, call.bytes_max, call.claims[0].batch) == (
            mine.auto_ack,
            mine.lease_seconds,
            mine.bytes_max,
            mine.claims[0].batch,
        )

    def add(self, call: PopCall) -> None:
        self.claims += call.claims
        self.wants_due |= any(claim.wants_due for claim in call.claims)


class GroupPopper:
    """Combines the pops that wait while earlier ones are in flight, whatever their groups."""

    def __init__(self, database: Callable[[], Database], floors: ScanFloors, cache: TailCache, flushes: int) -> None:
        self._database = database
        self._floors = floors
        self._cache = cache
        self._special: dict[int, float] = {}
        """Time until which a group needs `fairlane.pop`."""
        self._alone = False
        """True while a pop without acks is in flight that found no other one to be combined with."""
        self._batcher: Batcher[PopCall, GroupPop | None] = Batcher(self._flush, BatchPolicy(flushes=flushes))

    async def pop(self, call: PopCall, acks: AckStatement | None = None) -> GroupPop | None:
        """Apply the acks, and claim one lane per claim. None if the group needs `fairlane.pop`: nothing was claimed.

        The acks may have been applied in that case; see their `rows`.
        """
        if call.partition is not None or call.forgiving or self._special.get(call.group_id, 0.0) > monotonic():
            return None
        batch = call.claims[0].batch
        if [1 for claim in call.claims if claim.batch != batch] or batch == 0:
            return None
        if acks is not None:
            return None if acks.groups_text is None else await self._pop_alone(call, acks)
        if self._alone or not self._batcher.idle:
            # Not `submit`: an outcome whose caller is gone belongs to leases that the caller gives back.
            return await self._batcher.put(call, batch * len(call.claims))
        self._alone = True
        try:
            return await self._pop_alone(call)
        except BrokerFailed:
            return None
        finally:
            self._alone = False

    async def _pop_alone(self, call: PopCall, acks: AckStatement | None = None) -> GroupPop | None:
        part = _Part(call)
        part.add(call)
        popped = (await self._pop_parts([part], acks=acks))[call.group_id]
        if isinstance(popped, OutcomeUnknown):
            raise popped
        return popped

    async def _flush(self, calls: list[PopCall]) -> Sequence[_Popped]:
        parts: dict[int, _Part] = {}
        spans: list[tuple[int, int] | None] = []
        """The range of each call in the claims of its part. None if the call does not fit in."""
        for call in calls:
            part = parts.setdefault(call.group_id, _Part(call))
            if not part.takes(call):
                spans.append(None)
                continue
            spans.append((len(part.claims), len(part.claims) + len(call.claims)))
            part.add(call)
        try:
            popped = await self._pop_parts(sorted(parts.values(), key=lambda part: part.call.group_id))
        except BrokerFailed:  # a defect of one group fails only its own pops, by `fairlane.pop`
            return [None] * len(calls)
        results: list[_Popped] = []
        for call, span in zip(calls, spans, strict=True):
            result = None if span is None else popped[call.group_id]
            if span is not None and isinstance(result, GroupPop):
                result = result._replace(lanes=result.lanes[slice(*span)])
            results.append(result)
        return results

    async def _pop_parts(
        self,
        parts: Sequence[_Part],
        *,
        whole: bool = False,
        now: int | None = None,
        acks: AckStatement | None = None,
    ) -> dict[int, _Popped]:
        """Pop the parts in one call, after the acks.

        `whole` scans all lanes, and `now` overrides the clock of the store.
        """
        database, floors = self._database(), self._floors
        tails = self._cache.newest({part.call.queue_id for part in parts})
        starts = [MINUS_INFINITY if whole else floors.start_of_scan(part.call.group_id) for part in parts]
        began = monotonic()
        arguments: tuple[object, ...] = (
            [part.call.queue_id for part in parts],
            [part.call.group_id for part in parts],
            [len(part.claims) for part in parts],
            [part.call.claims[0].batch for part in parts],
            [part.call.auto_ack for part in parts],
            [part.call.lease_seconds or 0 for part in parts],
            starts,
            [part.call.bytes_max for part in parts],
            [part.wants_due for part in parts],
            [claim.token for part in parts for claim in part.claims],
            *listed(tails),
            database.time() if now is None else now,
        )
        if acks is None or acks.groups_text is None:
            rows = await database.write(SQL["pop_groups"], *arguments)
        else:
            rows = acks.split(await database.write(acks.groups_text, *arguments, *acks.arguments))
        took = monotonic() - began
        summaries = rows[-len(parts) :]
        lanes = await self._lanes(rows[: -len(parts)], tails, parts)
        popped: dict[int, _Popped] = {}
        again: list[_Part] = []
        for part, start, summary, found in zip(parts, starts, summaries, lanes, strict=True):
            group_id = part.call.group_id
            if not summary["plain"]:
                self._note_special(group_id)
                popped[group_id] = None
                continue
            popped_at, next_at = sent_time(summary["popped_at"]), summary["next_at"]
            popped[group_id] = GroupPop(found, popped_at, None if next_at is None else sent_time(next_at))
            floors.record_scan(group_id, start, summary["scan_from"], took)
            if found:
                self._cache.note_pop(part.call.queue_id, popped_at, found[-1].segments[-1].created_at)
            if len(found) < len(part.claims) and floors.should_rescan(group_id, start):
                again.append(_Part(part.call, part.claims[len(found) :], part.wants_due))
        if again:
            await self._pop_again(again, popped, now=sent_time(summaries[0]["popped_at"]))
        return popped

    async def _pop_again(self, parts: Sequence[_Part], popped: dict[int, _Popped], *, now: int) -> None:
        """Scan all lanes for claims that are left, and add what they got to `popped`.

        If that fails, the lanes that were claimed before are delivered. A group that may have more claims than are
        known gets the error, so that its callers release everything.
        """
        try:
            more = await self._pop_parts(parts, whole=True, now=now)
        except OutcomeUnknown as error:
            popped.update({part.call.group_id: error for part in parts if not part.call.auto_ack})
            return
        except (Unavailable, BrokerFailed):
            return
        for group_id, rest in more.items():
            first = popped[group_id]
            if isinstance(rest, GroupPop) and isinstance(first, GroupPop):
                popped[group_id] = rest._replace(lanes=first.lanes + rest.lanes)

    def _note_special(self, group_id: int) -> None:
        if len(self._special) > _SPECIAL_MAX:
            self._special.clear()
        self._special[group_id] = monotonic() + _SPECIAL_SECONDS

    async def _lanes(
        self, rows: Sequence[asyncpg.Record], tails: Sequence[Tail], parts: Sequence[_Part]
    ) -> list[list[ClaimedLane]]:
        """Return the lanes of each part, in the order of its claims."""
        cached = {tail.partition: tail.segments for tail in tails}
        counts = self._cache.counts
        found: list[list[ClaimedLane]] = [[] for _ in parts]
        lost: list[ClaimedLane] = []
        last, lane = (0, 0), None
        for grp, claim, partition, name, first, upto, ends_at, segment_first, at, checksum, ends, body, *_ in rows:
            created_at = sent_time(at)
            if lane is None or (grp, claim) != last:
                last = (grp, claim)
                lane = ClaimedLane(
                    partition=PartitionId.of(partition),
                    name=name,
                    first=first,
                    upto=upto,
                    attempts=0,
                    lease_ends_at=sent_time(ends_at),
                    segments=[],
                )
                found[grp - 1].append(lane)
            if body is not None:
                segment = Segment(segment_first, created_at, sent_numbers(ends), body, checksum)
                partly = segment.first <= first and upto < segment.first + len(segment.ends)
                queue_id = parts[grp - 1].call.queue_id
                lane.segments.append(self._cache.hold(queue_id, partition, segment) if partly else segment)
                counts.misses += 1
                continue
            known = cached[partition].get(segment_first)
            if known is not None and known.created_at == created_at and known.checksum == checksum:
                lane.segments.append(known)
                counts.hits += 1
                counts.hit_bytes += len(known.body)
            elif lane not in lost:
                lost.append(lane)
        for lane in lost:
            await self._read(lane)
        return found

    async def _read(self, lane: ClaimedLane) -> None:
        """Read the bytes of a claimed lane whose cached bytes differ, for example after a restore of the database."""
        partition = lane.partition.id
        self._cache.forget(partition)
        with after_commit():
            rows = await self._database().read(SQL["segments_between"], partition, lane.first, lane.upto)
        lane.segments = [Segment(first, at, ends, body, checksum) for first, at, ends, body, checksum in rows]
