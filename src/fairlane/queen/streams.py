"""Streams: queries over queues, and their state in each partition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

import msgspec

from fairlane.broker.resource import Resource
from fairlane.broker.transact import Commit
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.ids import PartitionId, parse_uuid, uuid7
from fairlane.model.limits import BATCH_ITEMS_MAX, POP_BYTES_MAX, STATE_KEY_CHARS_MAX
from fairlane.model.names import STREAM_GROUPS, check_name
from fairlane.queen.model.stream import Registered, StateChange, StateFilter, StreamQuery
from fairlane.queen.store.streams import StoredStreams
from fairlane.queen.wire.streams import QueryBody, StateEntry, StateGetBody

_ROWS_AT_ONCE = 200


class Streams(Resource):
    """The streams of a tenant."""

    @property
    def _streams(self) -> StoredStreams:
        return self._store.family(StoredStreams)

    async def register(self, body: QueryBody, check: Callable[[StreamQuery], None] = lambda known: None) -> Registered:
        """Return the query of this name, created if it is new.

        A query that has another hash is returned with it, unless the body asks for a reset. Calls `check` with an
        existing query before changing it.
        """
        wanted = StreamQuery(
            id=UUID(uuid7()),
            name=body.name,
            source_queue=body.source_queue,
            sink_queue=body.sink_queue,
            config_hash=body.config_hash,
        ).check()
        for name in (wanted.source_queue, wanted.sink_queue):
            if name and (queue := await self._store.queues.get(self._tenant, name)) is not None:
                await self._store.check_home(queue.id, "streams")
        return await self._streams.register(self._tenant, wanted, reset=body.reset, check=check)

    async def existing(self, query_id: str) -> StreamQuery:
        found = await self._streams.get(self._tenant, parsed_id(query_id))
        if found is None:
            raise NotFound("there is no such query")
        return found

    async def check(self, change: StateChange) -> None:
        """Raise NotFound if the query or the partition does not exist, or belongs to another tenant."""
        if await self._streams.get(self._tenant, change.query_id) is None:
            raise NotFound("there is no such query")
        await self._catalogue.owned(self._tenant, change.partition)
        await self._store.check_home(change.partition, "streams")

    async def commit_of(self, change: StateChange) -> Commit:
        """Return the commit of a transaction that also changes the state of a stream.

        Raises NotFound if the query or the partition does not exist.
        """
        await self.check(change)
        return partial(self._streams.cycle, change)

    async def state(self, body: StateGetBody) -> list[StateEntry]:
        """Return all matching rows, by key. Raises InvalidRequest if they do not fit in one answer."""
        partition = PartitionId.parse(body.partition_id)
        if len(body.keys) > BATCH_ITEMS_MAX:
            raise InvalidRequest(f"at most {BATCH_ITEMS_MAX} keys may be requested, not {len(body.keys)}")
        where = StateFilter(
            keys=[_key("keys", key) for key in body.keys] or None,
            prefix=_key("key_prefix", body.key_prefix) if body.key_prefix else "",
            ripe_until=body.ripe_at_or_before,
        )
        query = await self.existing(body.query_id)
        await self._catalogue.owned(self._tenant, partition)
        await self._store.check_home(partition, "streams")
        if where.ripe_until is not None:  # an idle flush skips state whose lease is held
            where = msgspec.structs.replace(where, idle_group=f"{STREAM_GROUPS}{query.name}")
        found: list[StateEntry] = []
        size = 0
        while page := await self._streams.state(query.id, partition, where, limit=_ROWS_AT_ONCE):
            found += page
            size += sum(len(row.value) for row in page)
            if size > POP_BYTES_MAX:
                raise InvalidRequest(f"more than {POP_BYTES_MAX} bytes of state match; choose by keys or by a prefix")
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
