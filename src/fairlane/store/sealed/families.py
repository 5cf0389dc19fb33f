"""Sealed families of a store: what messages say is sealed below and clear above."""

from __future__ import annotations

from builtins import list as List  # a family has a verb of that name
from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from uuid import UUID

import msgspec

from fairlane.errors import SealError, StoreCorrupt
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import DeadLetter
from fairlane.model.segment import Segment, checksum, may_be_sealed
from fairlane.model.source import SourceStep
from fairlane.model.stream import StateChange, StateFilter, StateOp, StateRow
from fairlane.model.trace import Trace
from fairlane.store.contract import scheduled, streams
from fairlane.store.contract import store as base
from fairlane.store.contract.values import (
    AckResult,
    Added,
    DeadFilter,
    Duplicates,
    Gone,
    LaneAck,
    PopCall,
    PopResult,
    PushResult,
    ScheduledSlice,
    Slice,
)
from fairlane.store.families.effects import Effects
from fairlane.store.families.schedules import Advance
from fairlane.store.families.traces import Traces
from fairlane.store.sealed.vault import BLOB, NotPrepared, Vault, key_of


class Locked(Segment, frozen=True):
    """A segment that cannot be opened: reading it says why."""

    reason: str

    def check(self) -> None:
        raise SealError(self.reason)


class Over:
    """A family over another: what is not said here is the other's."""

    def __init__(self, family: Any, vault: Vault, store: base.Store) -> None:
        self._family = family
        self._vault = vault
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    async def _sealed(self, slices: Sequence[Slice]) -> Sequence[Slice]:
        if not any(part.options.encryption_enabled for part in slices):
            return slices
        for queue_id in sorted({part.queue_id for part in slices if part.options.encryption_enabled}):
            await self._vault.prepare(queue_id)
        return [self._seal(part) if part.options.encryption_enabled else part for part in slices]

    def _seal(self, part: Slice) -> Slice:
        seal = self._vault.seal
        fragments = [seal(part.queue_id, part.partition, fragment) for fragment in part.fragments]
        return msgspec.structs.replace(part, fragments=fragments)

    async def _noted(self, acks: Sequence[LaneAck]) -> Sequence[LaneAck]:
        """Acks with their results sealed, where the queue is."""
        if not any(one.results for one in acks):
            return acks
        return [await self._with_results_sealed(one) if one.results else one for one in acks]

    async def _with_results_sealed(self, ack: LaneAck) -> LaneAck:
        results = [
            (position, await self._blob(ack.partition, result, f"result {position}"))
            for position, result in ack.results
        ]
        return msgspec.structs.replace(ack, results=results)

    async def _blob(self, partition: PartitionId, data: bytes, what: str) -> bytes:
        found = await self._store.queues.partition(partition)
        if found is None or not await self._vault.is_sealed(found.queue_id):
            return data
        await self._vault.prepare(found.queue_id)
        return BLOB + self._vault.seal_data(found.queue_id, data, _context(partition, what))

    async def _clear(self, partition: PartitionId, data: bytes, what: str) -> bytes:
        if not data.startswith(BLOB):
            return data
        record = data.removeprefix(BLOB)
        await self._vault.know([record[1:17]])
        return self._vault.open_data(record, _context(partition, what))


def _context(partition: PartitionId, what: str) -> bytes:
    return f"{partition}/{what}".encode()


class SealedMessages(Over):
    _family: base.Messages

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        return await self._family.push(await self._sealed(slices))

    async def pop(self, call: PopCall) -> PopResult:
        result = await self._family.pop(call)
        for lanes in result.lanes:
            for lane in lanes:
                for segment in lane.segments:
                    if may_be_sealed(segment.body):
                        lane.segments = await self._open(lane.partition, lane.segments, lane.first, lane.upto)
                        break
        return result

    async def ack(self, acks: Sequence[LaneAck]) -> list[AckResult]:
        return await self._family.ack(await self._noted(acks))

    async def read(self, partition: PartitionId, first: int, upto: int) -> list[Segment]:
        segments = await self._family.read(partition, first, upto)
        if not any(may_be_sealed(segment.body) for segment in segments):
            return segments
        return await self._open(partition, segments, first, upto)

    async def transact(
        self, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        return await self._family.transact(await self._noted(acks), await self._sealed(slices))

    async def _open(self, partition: PartitionId, segments: Sequence[Segment], first: int, upto: int) -> list[Segment]:
        """The part of the segments that is asked for, in clear; one that cannot be opened stays locked."""
        found: list[Segment] = []
        for segment in segments:
            try:
                fragments = segment.fragments(first, upto)
                await self._vault.know(key for fragment in fragments if (key := key_of(fragment)) is not None)
                clear = [self._vault.open(partition, fragment) for fragment in fragments]
            except SealError as error:
                found.append(Locked(**msgspec.structs.asdict(segment), reason=str(error)))
            except StoreCorrupt:
                found.append(segment)
            else:
                body = b"".join(clear)
                ends = list(accumulate(map(len, clear)))
                found.append(Segment(max(segment.first, first), segment.created_at, ends, body, checksum(body)))
        return found


class SealedScheduled(Over):
    """Scheduled messages are sealed as they will be stored, so that they are appended as they are."""

    _family: scheduled.ScheduledMessages

    async def add(self, parts: Sequence[ScheduledSlice]) -> List[Added | Duplicates | Gone]:
        slices = await self._sealed([part.slice for part in parts])
        sealed = [msgspec.structs.replace(part, slice=slice) for part, slice in zip(parts, slices, strict=True)]
        return await self._family.add(sealed)


class SealedDeadLetters(Over):
    _family: base.DeadLetters

    async def list(
        self, queue_id: int, where: DeadFilter, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> List[DeadLetter]:
        letters = await self._family.list(queue_id, where, limit=limit, before=before)
        return [await self._opened(letter) for letter in letters]

    async def get(self, queue_id: int, id: str) -> DeadLetter | None:
        letter = await self._family.get(queue_id, id)
        return None if letter is None else await self._opened(letter)

    async def replay(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> List[tuple[str, str]]:
        if await self._vault.know_queue(queue_id):
            await self._vault.prepare(queue_id)
        try:
            return await self._family.replay(queue_id, where, limit=limit)
        except NotPrepared:  # encrypted since these letters were written, and nothing was pushed since
            await self._vault.prepare(queue_id)
            return await self._family.replay(queue_id, where, limit=limit)

    async def _opened(self, letter: DeadLetter) -> DeadLetter:
        """The letter in clear. One that cannot be opened is shown without its data, so that the others are shown."""
        key = key_of(letter.message)
        if key is None:
            return letter
        await self._vault.know([key])
        try:
            return msgspec.structs.replace(letter, message=self._vault.open(letter.partition, letter.message))
        except SealError:
            return letter


class SealedGroups(Over):
    _family: base.Groups

    async def result(self, group_id: int, partition: PartitionId, position: int) -> bytes | None:
        result = await self._family.result(group_id, partition, position)
        return None if result is None else await self._clear(partition, result, f"result {position}")


class SealedTraces(Over):
    _family: Traces

    async def add(self, trace: Trace) -> bool:
        data = await self._blob(trace.partition, trace.data, f"trace {trace.id}")
        return await self._family.add(msgspec.structs.replace(trace, data=data))

    async def of_message(self, partition: PartitionId, transaction_id: str, *, limit: int = 1000) -> List[Trace]:
        return await self._opened(await self._family.of_message(partition, transaction_id, limit=limit))

    async def named(self, tenant: str, name: str, *, limit: int = 100, offset: int = 0) -> List[Trace]:
        return await self._opened(await self._family.named(tenant, name, limit=limit, offset=offset))

    async def _opened(self, traces: List[Trace]) -> List[Trace]:
        return [
            msgspec.structs.replace(trace, data=await self._clear(trace.partition, trace.data, f"trace {trace.id}"))
            for trace in traces
        ]


class SealedStreams(Over):
    _family: streams.Streams

    async def cycle(
        self, change: StateChange, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[List[AckResult], List[PushResult]]:
        """The state is computed from messages, and is sealed where they are: a stream over a sealed queue fails without
        its key rather than keep what the messages say in clear. Keys and window ends stay readable, to be found by."""
        ops = [op if op.value is None else await self._op(change, op, op.value) for op in change.ops]
        change = msgspec.structs.replace(change, ops=ops)
        return await self._family.cycle(change, await self._noted(acks), await self._sealed(slices))

    async def _op(self, change: StateChange, op: StateOp, value: bytes) -> StateOp:
        sealed = await self._blob(change.partition, value, _state(change.query_id, op.key))
        return msgspec.structs.replace(op, value=sealed)

    async def state(
        self, query_id: UUID, partition: PartitionId, where: StateFilter, *, limit: int = 1000
    ) -> List[StateRow]:
        rows = await self._family.state(query_id, partition, where, limit=limit)
        return [
            msgspec.structs.replace(row, value=await self._clear(partition, row.value, _state(query_id, row.key)))
            for row in rows
        ]


def _state(query_id: UUID, key: str) -> str:
    return f"state {query_id} {key}"


class SealedSteps(Over):
    """Schedules and sources: what they push is sealed. Of a source's records nothing is stored but keys and hashes."""

    async def commit(self, step: Advance | SourceStep, acks: Sequence[LaneAck], slices: Sequence[Slice]) -> Any:
        return await self._family.commit(step, acks, await self._sealed(slices))


class SealedEffects(Over):
    _family: Effects

    async def get(self, tenant: str, key: str, partition: PartitionId) -> bytes | None:
        found = await self._family.get(tenant, key, partition)
        return None if found is None else await self._clear(partition, found, f"effect {key}")

    async def keep(self, tenant: str, key: str, partition: PartitionId, effect: bytes, *, seconds: int) -> bytes:
        sealed = await self._blob(partition, effect, f"effect {key}")
        saved = await self._family.keep(tenant, key, partition, sealed, seconds=seconds)
        return await self._clear(partition, saved, f"effect {key}")
