"""Streams: queries over queues, and the state that they keep for each partition."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from fairlane.broker.part import Part
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.ids import PartitionId, parse_uuid, uuid7
from fairlane.model.limits import BATCH_ITEMS_MAX, POP_BYTES_MAX, STATE_KEY_CHARS_MAX
from fairlane.model.names import check_name
from fairlane.model.stream import STREAM_GROUPS, Registered, StateChange, StateFilter, StreamQuery
from fairlane.wire.base import made
from fairlane.wire.streams import QueryBody, StateEntry, StateGetBody

_ROWS_AT_ONCE = 200


class Streams(Part):
    async def register(self, body: QueryBody, check: Callable[[StreamQuery], None] = lambda known: None) -> Registered:
        """The query of this name, made if it is new. One that was registered with another hash comes with that, unless
        its state is to be dropped. Calls `check` with a query that is there before changing it."""
        wanted = made(StreamQuery, body, id=UUID(uuid7()))
        return await self._store.streams.register(self._tenant, wanted.check(), reset=body.reset, check=check)

    async def existing(self, query_id: str) -> StreamQuery:
        found = await self._store.streams.get(self._tenant, parsed_id(query_id))
        if found is None:
            raise NotFound("there is no such query")
        return found

    async def check(self, change: StateChange) -> None:
        """NotFound if the query or the partition is not there, or another tenant's."""
        if await self._store.streams.get(self._tenant, change.query_id) is None:
            raise NotFound("there is no such query")
        await self._catalogue.owned(self._tenant, change.partition)

    async def state(self, body: StateGetBody) -> list[StateEntry]:
        """All that match, by key: half a state would be a wrong one. More than an answer can hold is refused."""
        partition = PartitionId.parse(body.partition_id)
        if len(body.keys) > BATCH_ITEMS_MAX:
            raise InvalidRequest(f"at most {BATCH_ITEMS_MAX} keys may be asked for, not {len(body.keys)}")
        where = StateFilter(
            keys=[_key("keys", key) for key in body.keys] or None,
            prefix=_key("key_prefix", body.key_prefix) if body.key_prefix else "",
            ripe_until=body.ripe_at_or_before,
        )
        query = await self.existing(body.query_id)
        await self._catalogue.owned(self._tenant, partition)
        if where.ripe_until is not None:  # an idle flush: what is held is not idle, and closed by who holds it
            where = msgspec.structs.replace(where, idle_group=f"{STREAM_GROUPS}{query.name}")
        found: list[StateEntry] = []
        size = 0
        while page := await self._store.streams.state(query.id, partition, where, limit=_ROWS_AT_ONCE):
            found += page
            size += sum(len(row.value) for row in page)
            if size > POP_BYTES_MAX:
                raise InvalidRequest(f"more than {POP_BYTES_MAX} bytes of state match; ask by keys or by a prefix")
            where = msgspec.structs.replace(where, after=page[-1].key)
            if len(page) < _ROWS_AT_ONCE:
                break
        return found


def parsed_id(text: str) -> UUID:
    found = parse_uuid(text)
    if found is None:
        raise InvalidRequest(f"query_id must be the UUID that a registration returned, not {text!r:.80}")
    return found


def _key(what: str, key: str) -> str:
    return check_name(what, key, chars_max=STATE_KEY_CHARS_MAX)
