"""The steps of families on PostgreSQL: a function each, called by a statement of the family."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from fairlane.model.group import Seek, Subscription
from fairlane.model.retention import Expired
from fairlane.store.families.dialect import Dialect
from fairlane.store.families.query import Row, Value, value


class PostgresDialect(Dialect):
    def __init__(self, run: Callable[..., Awaitable[list[Row]]]) -> None:
        self._run = run

    async def newest_messages(
        self, ids: Sequence[int], until: Sequence[int], below: Sequence[int], *, since: int, limit: int, bytes: int
    ) -> list[Row]:
        bounds: dict[str, Value] = {"ids": ids, "until": until, "below": below, "since": since}
        return await self._run("browse.newest", limit=limit, bytes=bytes, **bounds)

    async def messages_with_id(
        self,
        queue_ids: Sequence[int],
        partition_ids: Sequence[int] | None,
        transaction_id: str,
        keys: Sequence[int],
        since: int | None,
        until: int | None,
    ) -> list[Row]:
        where: dict[str, Value] = {"queue_ids": queue_ids, "partition_ids": partition_ids, "keys": keys}
        where |= {"since": since, "until": until}
        return await self._run("browse.with_id", transaction_id=transaction_id, **where)

    async def delete_message(self, partition_id: int, position: int, transaction_id: str) -> bool:
        where: dict[str, Value] = {"partition_id": partition_id, "position": position}
        return bool(value(await self._run("browse.delete", transaction_id=transaction_id, **where)))

    async def dead_letter_message(self, partition_id: int, group_id: int, position: int, error: str) -> str | None:
        where: dict[str, Value] = {"partition_id": partition_id, "group_id": group_id, "position": position}
        found: str | None = value(await self._run("browse.dead_letter", error=error, **where))
        return found

    async def limit_state(self, group_id: int, key: str) -> list[Row]:
        return [tuple(row) for row in await self._run("limits.state", group_id=group_id, key=key)]

    async def cancel_message(self, partition_id: int, group_id: int, position: int) -> list[Row]:
        where: dict[str, Value] = {"partition_id": partition_id, "group_id": group_id, "position": position}
        return await self._run("cancellations.cancel", **where)

    async def trim(self, limit: int) -> bool:
        return bool(value(await self._run("browse.trim", limit=limit)))

    async def forget_ids(self, limit: int) -> int:
        return int(value(await self._run("browse.forget_ids", limit=limit)))

    async def subscribe(self, queue_id: int, name: str, subscription: Subscription, limit: int) -> list[Row]:
        begun: dict[str, Value] = {"mode": subscription.mode, "from_at": subscription.start}
        begun |= {"conflation": subscription.conflation, "look": subscription.look, "limit": limit}
        return await self._run("groups.subscribe", queue_id=queue_id, name=name, **begun)

    async def seed_group(self, group_id: int, limit: int) -> bool:
        return bool(value(await self._run("groups.seed", group_id=group_id, limit=limit)))

    async def seek(self, queue_id: int, group_id: int, partition_id: int, seek: Seek) -> int:
        lanes: dict[str, Value] = {"queue_id": queue_id, "group_id": group_id, "partition_id": partition_id}
        return value(await self._run("groups.seek", **lanes, **_target(seek))) or 0

    async def preview_seek(self, queue_id: int, group_id: int, seek: Seek, limit: int) -> list[Row]:
        lanes: dict[str, Value] = {"queue_id": queue_id, "group_id": group_id, "limit": limit}
        return await self._run("groups.preview_seek", **lanes, **_target(seek))

    async def resume_lanes(self, group_id: int, partition_id: int) -> int:
        return int(value(await self._run("pauses.resume_lanes", group_id=group_id, partition_id=partition_id)))

    async def ensure_partitions(self, queue_ids: Sequence[int], names: Sequence[str], *, make: bool) -> list[Row]:
        return await self._run("queues.ensure_partitions", queue_ids=queue_ids, names=names, make=make)

    async def purge_queue(self, queue_id: int) -> bool:
        return bool(value(await self._run("queues.purge", queue_id=queue_id)))

    async def count_unfinished(self, queue_id: int) -> int:
        return int(value(await self._run("queues.unfinished", queue_id=queue_id)))

    async def claim_operations(
        self, worker: str, token: UUID, *, backlogs: int, run: int, bytes: int, seconds: int
    ) -> list[Row]:
        limits: dict[str, Value] = {"backlogs": backlogs, "run": run, "bytes": bytes, "seconds": seconds}
        return await self._run("operations.claim", worker=worker, token=token, **limits)

    async def expire_messages(self, limit: int) -> tuple[list[Expired], int]:
        rows = await self._run("retention.expire", limit=limit)
        checked = [row["checked"] for row in rows if row["checked"] is not None]
        return [Expired(*row[:4]) for row in rows if row["checked"] is None], sum(checked)

    async def is_scheduled(self, partition_id: int, transaction_id: bytes, keys: Sequence[int], id_ms: int) -> bool:
        message: dict[str, Value] = {"partition_id": partition_id, "transaction_id": transaction_id, "keys": keys}
        return bool(value(await self._run("scheduled.is_scheduled", id_times=[id_ms] * len(keys), **message)))

    async def change_scheduled(
        self,
        partition_id: int,
        transaction_id: bytes,
        keys: Sequence[int],
        id_ms: int,
        new_id: UUID,
        *,
        move: bool,
        due_at: int | None,
        delay_ms: int,
    ) -> int | None:
        message: dict[str, Value] = {"partition_id": partition_id, "transaction_id": transaction_id, "keys": keys}
        change: dict[str, Value] = {"new_id": new_id, "move": move, "due_at": due_at, "delay_ms": delay_ms}
        found: int | None = value(await self._run("scheduled.change", id_ms=id_ms, **message, **change))
        return found


def _target(seek: Seek) -> dict[str, Value]:
    return {"to": seek.to, "at": seek.target if seek.to == "time" else None, "position": seek.target}
