"""Trace notes: notes of consumers on their work, by message and by name."""

from __future__ import annotations

import msgspec

from fairlane.broker.messages import message_at
from fairlane.broker.resource import Resource
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.limits import POP_BYTES_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.nesting import check_depth
from fairlane.model.principal import ANYBODY, Principal
from fairlane.model.segment import messages
from fairlane.queen.model.trace import Trace
from fairlane.queen.store.traces import StoredTraces
from fairlane.wire import traces as wire
from fairlane.wire.base import NULL, Pagination


class TraceNotes(Resource):
    """The trace notes of a tenant."""

    @property
    def _traces(self) -> StoredTraces:
        return self._store.family(StoredTraces)

    async def add(self, body: wire.TraceBody) -> str:
        """Add a note about the work on a message, and return its id. Raises NotFound if there is no such message."""
        if not body.data:
            raise InvalidRequest("data is required")
        data, names = bytes(body.data), body.trace_names or []
        check_depth(data)
        trace = Trace(
            id=uuid7(),
            partition=PartitionId.parse(body.partition_id),
            transaction_id=body.transaction_id,
            data=data,
            group=body.consumer_group or QUEUE_MODE,
            event_type=body.event_type or "info",
            names=[names] if isinstance(names, str) else names,
        ).check()
        there = await self._catalogue.partition(self._tenant, trace.partition)
        if there:
            await self._store.check_home(trace.partition, "trace notes")
        position = there and await self._store.messages.find(trace.partition, trace.transaction_id)
        await self._scope.quota.check_others()
        if position is None or not await self._traces.add(trace):
            raise NotFound("Message not found")
        return trace.id

    async def of_message(self, partition_id: str, transaction_id: str) -> list[wire.TraceEntry]:
        """Return the notes of a message, oldest first."""
        partition, transaction_id = message_at(partition_id, transaction_id)
        if await self._catalogue.partition(self._tenant, partition) is None:
            return []
        found = await self._traces.of_message(partition, transaction_id)
        return [
            wire.TraceEntry(
                id=trace.id,
                event_type=trace.event_type,
                data=msgspec.Raw(trace.data),
                group=trace.group,
                created_at=Moment(trace.created_at),
                names=trace.names,
            )
            for trace in found
        ]

    async def named(self, name: str, query: wire.NamedTraceQuery, caller: Principal = ANYBODY) -> wire.NamedTraceList:
        """Return the notes of a name, oldest first, in all queues or in those that the caller may browse."""
        check_name("traceName", name)
        of = await self._browsable_ids(caller)
        traces = await self._traces.named(self._tenant, name, of=of, limit=query.limit, offset=query.offset)
        queues = {queue.id: queue.name for queue in await self._store.queues.all(self._tenant)}
        shown: list[wire.NamedTraceEntry] = []
        size = 0
        for trace in traces:
            payload = await self._payload(trace)
            size += len(trace.data) + len(payload)
            if shown and size > POP_BYTES_MAX:
                break
            partition = await self._catalogue.partition(self._tenant, trace.partition)
            shown.append(
                wire.NamedTraceEntry(
                    id=trace.id,
                    event_type=trace.event_type,
                    data=msgspec.Raw(trace.data),
                    group=trace.group,
                    created_at=Moment(trace.created_at),
                    names=trace.names,
                    transaction_id=trace.transaction_id,
                    partition_id=str(trace.partition),
                    queue_name=queues.get(partition.queue_id) if partition else None,
                    partition_name=partition.name if partition else None,
                    message_payload=payload,
                )
            )
        total = await self._traces.count_named(self._tenant, name, of=of)
        return wire.NamedTraceList(
            traces=shown, total=total, pagination=Pagination(limit=query.limit, offset=query.offset)
        )

    async def _payload(self, trace: Trace) -> msgspec.Raw:
        position = await self._store.messages.find(trace.partition, trace.transaction_id)
        if position is None:
            return NULL
        segments = await self._store.messages.read(trace.partition, position, position + 1)
        found = next(messages(segments, position, position + 1), None)
        return found.raw if found else NULL

    async def _browsable_ids(self, caller: Principal) -> list[int] | None:
        """Return the ids of the queues that the caller may browse, or None for all."""
        if caller.allows_all("browse"):
            return None
        return [queue.id for queue in await self._store.queues.all(self._tenant) if caller.allows("browse", queue.name)]

    async def names(self, query: wire.TraceNameQuery, caller: Principal = ANYBODY) -> wire.TraceNameList:
        """Return the names of trace notes, latest used first."""
        of = await self._browsable_ids(caller)
        found = await self._traces.names(self._tenant, of=of, limit=query.limit, offset=query.offset)
        total = await self._traces.count_names(self._tenant, of=of)
        pagination = Pagination(limit=query.limit, offset=query.offset)
        return wire.TraceNameList(trace_names=found, total=total, pagination=pagination)
