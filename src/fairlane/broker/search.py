"""Search by a name or an id over all queues, at a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.broker.browse import Browse
from fairlane.broker.deferral.operations import Operations
from fairlane.broker.engine import TenantScope
from fairlane.broker.resource import Resource
from fairlane.errors import NotFound
from fairlane.model.ids import is_uuid, uuid7_ms
from fairlane.model.names import check_name
from fairlane.model.principal import ANYBODY, Principal
from fairlane.model.queue import Queue
from fairlane.wire.browse import MessageHead, MessageQuery
from fairlane.wire.search import FoundOperation, FoundPartition, SearchQuery, SearchResult

PARTITIONS_MAX = 5_000
"""Maximum number of partitions searched for a transactionId, most recently written first."""
_CLOCK_SKEW = 1_000_000
"""Microseconds by which the clock of a producer may be ahead."""


class Search(Resource):
    def __init__(self, scope: TenantScope, browse: Browse, operations: Operations) -> None:
        super().__init__(scope)
        self._browse = browse
        self._operations = operations

    async def find(self, query: SearchQuery, caller: Principal = ANYBODY) -> SearchResult:
        """Return what matches the text and is visible to the caller."""
        check_name("text", query.text)
        queues = await self._store.queues.all(self._tenant)
        visible = [one for one in queues if caller.allows("status", one.name)]
        readable = [one for one in queues if caller.allows("browse", one.name)]
        messages, complete = await self._with_id(readable, query)
        folded = query.text.casefold()
        return SearchResult(
            queues=sorted(one.name for one in visible if folded in one.name.casefold())[: query.limit],
            partitions=await self._partitions(visible, query),
            messages=messages,
            trace=await self._traced(readable, query),
            operation=await self._operation(query.text, caller),
            complete=complete,
        )

    async def _partitions(self, queues: Sequence[Queue], query: SearchQuery) -> list[FoundPartition]:
        names = {one.id: one.name for one in queues}
        found = await self._store.browse.named_like(list(names), query.text, limit=query.limit) if names else []
        return [FoundPartition(queue=names[one.queue_id], partition=one.name) for one in found]

    async def _with_id(self, queues: list[Queue], query: SearchQuery) -> tuple[list[MessageHead], bool]:
        made_at = uuid7_ms(query.text)
        since = 0 if made_at is None or made_at >= 2**43 else made_at * 1000 - _CLOCK_SKEW
        ids = [one.id for one in queues]
        active = await self._store.browse.active(ids, since=since, limit=PARTITIONS_MAX + 1) if ids else []
        among = [one.id for one in active[:PARTITIONS_MAX]]
        where = MessageQuery(transaction_id=query.text, limit=query.limit)
        found = await self._browse.find_by_id(queues, where, among=among)
        return found.messages, len(active) <= PARTITIONS_MAX

    async def _traced(self, queues: list[Queue], query: SearchQuery) -> list[MessageHead]:
        if not is_uuid(query.text):
            return []
        found = await self._browse.find_by_id(queues, MessageQuery(trace_id=query.text, limit=query.limit))
        return found.messages

    async def _operation(self, text: str, caller: Principal) -> FoundOperation | None:
        if not is_uuid(text):
            return None
        try:
            found = await self._operations.get(text)
        except NotFound:
            return None
        if not caller.allows("status", found.queue):
            return None
        return FoundOperation(id=str(found.id), queue=found.queue, status=found.status)
