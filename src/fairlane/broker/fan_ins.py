"""Fan-ins: messages pushed together, with a callback after the ends of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.broker.resource import Resource
from fairlane.errors import NotFound
from fairlane.model.fan_in import FanInStep
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import check_count, check_name
from fairlane.model.principal import ANYBODY, Principal
from fairlane.model.queue import Queue
from fairlane.store.families.fan_ins import StoredFanIn, StoredPart
from fairlane.wire.fan_ins import FanIn, FanInDetail, FanInPart


class FanIns(Resource):
    """The fan-ins of a tenant. Transactions create them."""

    async def get(self, id: str, *, limit: int = 100, offset: int = 0) -> FanInDetail:
        """Return a fan-in with a page of its parts. Raises NotFound."""
        check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        check_count("offset", offset, least=0, most=BATCH_ITEMS_MAX)
        found = await self._store.fan_ins.get(self._tenant, check_name("id", id))
        if found is None:
            raise NotFound(f"there is no fan-in {id!r:.80}; it is forgotten a day after its end")
        parts = await self._store.fan_ins.parts(self._tenant, id, first=offset, limit=limit)
        return FanInDetail(**_fields(found), parts=list(map(_part, parts)))

    async def all(self, *, limit: int = 100, caller: Principal = ANYBODY) -> list[FanIn]:
        """Return the newest fan-ins whose callbacks go to queues that the caller may see."""
        check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        found = await self._store.fan_ins.newest(self._tenant, limit=limit)
        return [FanIn(**_fields(one)) for one in found if caller.allows("status", one.queue)]

    async def prepare(self, steps: Sequence[FanInStep]) -> list[tuple[FanInStep, Queue]]:
        """Return new fan-ins with the queues of their callbacks, which are created if missing."""
        found = []
        for step in steps:
            queue = await self._catalogue.queue(self._tenant, step.callback.queue, make=True)
            assert queue is not None, "a missing queue is created"
            found.append((step, queue))
        return found

    async def delete(self, id: str) -> bool:
        """Delete a fan-in, so that its callback is not pushed. Its parts are not affected."""
        return await self._store.fan_ins.delete(self._tenant, check_name("id", id))


def _fields(found: StoredFanIn) -> dict[str, Any]:
    status = "ended" if found.ended_at is not None else "open" if found.error is None else "refused"
    return {
        "id": found.id,
        "queue": found.queue,
        "consumer_group": found.group,
        "status": status,
        "total": found.total,
        "open": found.total - found.completed - found.failed,
        "completed": found.completed,
        "failed": found.failed,
        "created_at": Moment(found.created_at),
        "ended_at": moment_or_none(found.ended_at),
        "error": found.error,
    }


def _part(found: StoredPart) -> FanInPart:
    return FanInPart(
        part=found.part,
        queue=found.queue,
        partition=found.partition,
        partition_id=str(found.partition_id),
        transaction_id=found.transaction_id,
        status=found.status or "open",  # type: ignore[arg-type]
        error=found.error,
        ended_at=moment_or_none(found.ended_at),
    )
