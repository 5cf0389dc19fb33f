"""Administration of queues: options, groups, pauses, dead letters."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.broker.catalogue_watch import CATALOGUE
from fairlane.broker.engine import Engine
from fairlane.broker.pauses import PauseScope
from fairlane.errors import InvalidRequest, NotFound, OptionsChanged
from fairlane.model.explanation import Explanation
from fairlane.model.group import Group, LaneState, Seek
from fairlane.model.limits import COUNT_MAX
from fairlane.model.names import QUEUE_MODE, check_count, check_name
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import Queue, QueueOptions, queue_options
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import DeadFilter

_ANY = DeadFilter()


class Administration:
    """The verbs of a broker that deliver no messages."""

    store: Store
    engine: Engine
    tenant: str

    async def configure(
        self, queue: str, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> Queue:
        """Make a queue or replace its options; what is not named goes back to its default."""
        check_name("queue", queue)
        for label, given in (("namespace", namespace), ("task", task)):
            if given:
                check_name(label, given)
            elif given is not None and not isinstance(given, str):
                raise InvalidRequest(f"{label} must be a string, not {type(given).__name__}")
        return await self._configure(queue, queue_options(**options), namespace or "", task or "")

    async def _configure(
        self, queue: str, options: QueueOptions, namespace: str, task: str, before: QueueOptions | None = None
    ) -> Queue:
        await self.engine.forwarder.prepare(self.tenant, queue, options)
        configured = await self.store.queues.configure(
            self.tenant, queue, options, namespace=namespace, task=task, before=before
        )
        self.engine.catalogue.forget(configured.id)
        self.engine.catalogue.remember(configured)
        self.store.hint(CATALOGUE)
        return configured

    async def set_options(self, queue: str, **options: Any) -> Queue:
        """Change some options of a queue; the others stay as they are. NotFound if there is none."""
        while True:
            there = await self.store.queues.get(self.tenant, check_name("queue", queue))
            if there is None:
                raise NotFound(f"there is no queue {queue!r}")
            changed = queue_options(**msgspec.structs.asdict(there.options) | options)
            try:
                return await self._configure(queue, changed, there.namespace, there.task, before=there.options)
            except OptionsChanged:
                continue  # somebody else changed some meanwhile, and theirs stay too

    async def queues(self) -> list[Queue]:
        return await self.store.queues.list(self.tenant)

    async def delete_queue(self, queue: str) -> bool:
        known = await self.store.queues.get(self.tenant, check_name("queue", queue))
        deleted = await self.store.queues.delete(self.tenant, queue)
        if known is not None:
            self.engine.catalogue.forget(known.id)
        self.store.hint(CATALOGUE)
        return deleted

    async def depth(self, queue: str) -> int:
        return await self.store.queues.depth((await self._queue(queue)).id)

    async def groups(self, queue: str) -> list[Group]:
        return await self.store.groups.list((await self._queue(queue)).id)

    async def lanes(self, queue: str, group: str = QUEUE_MODE, *, limit: int = 1000) -> list[LaneState]:
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self.store.groups.lanes((await self._group(queue, group)).id, limit=limit)

    async def seek(self, queue: str, group: str, seek: Seek, *, partition: str | None = None) -> int:
        """Send a group to the beginning, the end, a time or a position; how many lanes moved."""
        if not isinstance(seek, Seek):
            raise InvalidRequest("say where to with a Seek")
        seek.check()
        found = await self._group(queue, group)
        lane = None
        if partition is not None:
            named = await self.store.queues.named(found.queue_id, check_name("partition", partition))
            if named is None:
                raise NotFound(f"queue {queue!r} has no partition {partition!r}")
            lane = named.id
        moved = await self.store.groups.seek(found.id, seek, partition=lane)
        self.engine.announce(found.queue_id, moved)
        return moved

    async def pause(self, queue: str, *, group: str | None = None, partition: str | None = None) -> None:
        """Hand out nothing of a queue, of one group, of one partition for all groups, or of one lane when both are
        named, until it is resumed. Pushes and acks go on."""
        await self.engine.pauses.pause(PauseScope(self.tenant, queue, group, partition))

    async def resume(self, queue: str, *, group: str | None = None, partition: str | None = None) -> bool:
        """Undo `pause` of the same; False if it was not paused. A blocked or parked lane begins its attempts anew."""
        return await self.engine.pauses.resume(PauseScope(self.tenant, queue, group, partition))

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group; how many."""
        return await self.engine.pauses.resume_lanes(PauseScope(self.tenant, queue, group))

    async def explain(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Explanation:
        """Why a lane does not move."""
        return await self.engine.pauses.explain(PauseScope(self.tenant, queue, group, partition))

    async def delete_group(self, queue: str, group: str) -> int:
        found = await self._group(queue, group)
        deleted = await self.store.groups.delete(found.id)
        self.engine.catalogue.forget_group(found.queue_id, group)
        return deleted

    async def dead_letters(
        self,
        queue: str,
        where: DeadFilter = _ANY,
        *,
        limit: int = 100,
    ) -> list[DeadLetter]:
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self.store.dead_letters.list((await self._queue(queue)).id, _filter(where), limit=limit)

    async def replay(self, queue: str, where: DeadFilter = _ANY) -> list[tuple[str, str]]:
        """Push dead letters again; (dead letter, new message) ids. A dead letter is replayed once."""
        found = await self._queue(queue)
        replayed = await self.store.dead_letters.replay(found.id, _filter(where))
        self.engine.announce(found.id, len(replayed))
        self.engine.operation_drain.enqueued(0)  # some may be operations
        return replayed

    async def purge(self, queue: str, where: DeadFilter = _ANY) -> int:
        return await self.store.dead_letters.purge((await self._queue(queue)).id, _filter(where))

    async def _queue(self, name: str) -> Queue:
        return await self.engine.catalogue.existing(self.tenant, check_name("queue", name))

    async def _group(self, queue: str, name: str) -> Group:
        found = await self._queue(queue)
        group = await self.store.groups.get(found.id, check_name("group", name))
        if group is None:
            raise NotFound(f"queue {queue!r} has no group {name!r}")
        return group


def _filter(where: DeadFilter) -> DeadFilter:
    if not isinstance(where, DeadFilter):
        raise InvalidRequest("choose dead letters with a DeadFilter")
    return where.check()
