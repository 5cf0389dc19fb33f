"""Streams: queries over queues, and the state they keep for each partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from fairlane.errors import NotFound, StateMoved
from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment
from fairlane.queen.model.stream import NOT_IDLE, NOT_THERE, Registered, StateChange, StateFilter, StateOp, StreamQuery
from fairlane.queen.wire.streams import StateEntry
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.families.query import DatabaseTransaction, Family, Row, Value, View, one, struct


class StoredStreams(Family):
    async def register(
        self, tenant: str, query: StreamQuery, *, reset: bool, check: Callable[[StreamQuery], None] = lambda known: None
    ) -> Registered:
        """Return the query of this name, created with the given id if it is new.

        Calls `check` with an existing query before changing it. If `check` raises, nothing changes. With the same hash
        its queues are replaced and its state stays. With another hash and `reset` its state is dropped and the hash
        replaced; without `reset` nothing changes, and the old hash is returned.
        """
        values: dict[str, Value] = {"tenant": tenant, **msgspec.structs.asdict(query)}

        async def work(transaction: DatabaseTransaction) -> Registered:
            if await transaction.run("streams.insert", **values):
                return Registered(query, fresh=True)
            found = await transaction.run("streams.lock", **values)
            if not found:
                raise NotFound(f"there is no tenant {tenant!r}")
            known = struct(StreamQuery, found[0])
            check(known)
            other = known.config_hash != query.config_hash
            if other and not reset:
                return Registered(known)
            if other:
                await transaction.run("streams.drop_state", query_id=known.id)
            await transaction.run("streams.renew", **values | {"id": known.id})
            return Registered(msgspec.structs.replace(query, id=known.id), reset=other)

        return await self._runner.transact(work)

    async def get(self, tenant: str, id: UUID) -> StreamQuery | None:
        return one(StreamQuery, await self._runner.read("streams.get", tenant=tenant, id=id))

    async def state(
        self, query_id: UUID, partition: PartitionId, where: StateFilter, *, limit: int = 1000
    ) -> list[StateEntry]:
        """Return the first `limit` entries that match, ordered by the UTF-8 bytes of their keys."""
        lane: dict[str, Value] = {"partition_id": partition.id, "group": where.idle_group}
        wanted: dict[str, Value] = {"query_id": query_id, "limit": limit, **msgspec.structs.asdict(where)}

        async def read(view: View) -> list[Row]:
            leased = where.idle_group and await view.run("streams.leased", **lane)
            return [] if leased else await view.run("streams.state", **lane, **wanted)

        found = []
        for key, stored, at in await self._runner.view(read):
            value = await self._runner.codec.open(partition, stored, f"state {query_id} {key}")
            found.append(StateEntry(key=key, value=msgspec.Raw(value), updated_at=Moment(at)))
        return found

    async def cycle(
        self, change: StateChange, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Apply acks and pushes like `Messages.transact`, with the change of state in the same transaction.

        Cycles of one query and partition come one after another. Raises NotFound if the query or the
        partition is gone, and StateMoved if the change requires a group to be idle that is not, or has not been.
        """
        where: dict[str, Value] = {"partition_id": change.partition.id}
        where |= {"query_id": change.query_id, "group": change.idle_group}

        changed = await self._sealed(change)

        async def begin(transaction: DatabaseTransaction) -> None:
            if not await transaction.run("streams.share", **where):
                raise NotFound("the stream's query does not exist any more")

        async def check(transaction: DatabaseTransaction) -> None:
            if not await transaction.run("streams.partition_there", **where):
                raise NotFound("the stream's partition does not exist any more")
            if not change.idle_group:
                return
            await transaction.lock("streams.lock_lane", **where)
            if await transaction.run("streams.leased", **where):
                raise StateMoved(NOT_IDLE, index=0)
            if len(await transaction.run("streams.keys_there", keys=change.deleted, **where)) < len(change.deleted):
                raise StateMoved(NOT_THERE, index=0)

        async def also(transaction: DatabaseTransaction, pushed: Sequence[PushResult]) -> None:
            if change.deleted:
                await transaction.run("streams.delete_state", keys=change.deleted, **where)
            if changed:
                columns: dict[str, Value] = {"keys": [op.key for op in changed], "values": [op.value for op in changed]}
                ends = [op.window_end for op in changed]
                await transaction.run("streams.put_state", window_ends=ends, **columns, **where)

        return await self._runner.transact_messages(
            acks, slices, begin=begin, check=check, also=also, locked=[change.partition]
        )

    async def _sealed(self, change: StateChange) -> list[StateOp]:
        """Return the keys that a change sets, with sealed values if the queue is encrypted.

        State is computed from messages, so it is sealed like them. Keys and window ends stay readable for lookups.
        """
        found = []
        for op in {op.key: op for op in change.ops}.values():
            if op.value is not None:
                value = await self._runner.codec.seal(change.partition, op.value, f"state {change.query_id} {op.key}")
                found.append(msgspec.structs.replace(op, value=value))
        return found
