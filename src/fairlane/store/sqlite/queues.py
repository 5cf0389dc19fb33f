"""Queues and their partitions."""

from __future__ import annotations

import logging
from builtins import list as List  # the family has a verb of that name
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import apsw
import msgspec

from fairlane.errors import Conflict, NotFound, OptionsChanged, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import (
    PRIORITY_SECONDS,
    TURNED,
    Partition,
    PartitionState,
    Queue,
    QueueOptions,
    eases,
    labels_of,
    turns,
)
from fairlane.store.families.specs import SPECS, SpecChange, changed
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.port import Transaction
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.sqlite.seeding import QUEUES as SQL
from fairlane.store.sqlite.seeding import SQL as GROUPS
from fairlane.store.sqlite.seeding import count_depth, recount_depth

_log = logging.getLogger(__name__)
T = TypeVar("T")
PURGE_ROWS: Final = 2_000  # deleted in one step: others wait for it some milliseconds
CHANGES_MAX: Final = 1000
_TABLES = (
    *("segments", "message_keys", "deleted_ids", "cursors", "claims", "failures", "skips", "dead_letters", "results"),
    *("traced", "traces", "trace_names", "stream_state", "trims", "expiries"),
    *("scheduled_messages", "scheduled_keys", "scheduled_segments"),
)


class Queues:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: str, name: str) -> Queue | None:
        return await self._database.read(lambda db, now: get(db, tenant, name))

    async def ensure(self, tenant: str, name: str) -> Queue:
        [queue] = await self.ensure_all(tenant, [name])
        return queue

    async def ensure_all(self, tenant: str, names: Sequence[str], *, make: bool = True) -> List[Queue]:
        def work(db: apsw.Connection, now: int) -> List[Queue]:
            found = [(name, get(db, tenant, name)) for name in dict.fromkeys(names)]
            return [
                queue or make_queue(db, now, (tenant, name), QueueOptions(), labels_of(name))
                for name, queue in found
                if queue or make
            ]

        return await (self._database.write(work) if make else self._database.read(work))

    async def configure(
        self,
        tenant: str,
        name: str,
        options: QueueOptions,
        *,
        namespace: str,
        task: str,
        before: QueueOptions | None = None,
    ) -> Queue:
        def work(db: apsw.Connection, now: int) -> Queue:
            queue = get(db, tenant, name)
            if before is not None and (queue is None or queue.options != before):
                raise OptionsChanged(name)
            if queue is None:
                return make_queue(db, now, (tenant, name), options, (namespace, task))
            configured = msgspec.structs.replace(queue, options=options, namespace=namespace, task=task)
            reconfigure(db, now, queue, configured)
            return configured

        return await self._database.write(work)

    async def list(self, tenant: str) -> List[Queue]:
        return await self._database.read(lambda db, now: [_queue(*row) for row in rows(db, SQL["list"], tenant)])

    async def delete(self, tenant: str, name: str) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            queue = get(db, tenant, name)
            if queue is None:
                return False
            delete(db, queue.id)
            return True

        deleted = await self._database.write(work)
        if deleted:
            await self.purge()
        return deleted

    async def declare(self, transaction: Transaction, change: SpecChange) -> None:
        db, now, tenant = transaction.db, transaction.now, change.spec.tenant
        for one in change.queues:
            queue = get(db, tenant, one.name)
            if (queue.options if queue else None) != one.before:
                raise changed(one.name)
            if queue is None:
                queue = make_queue(db, now, (tenant, one.name), one.after, labels_of(one.name))
                note_change(db, queue.id)
            else:
                reconfigure(db, now, queue, msgspec.structs.replace(queue, options=one.after))
        for name in change.queues_gone:
            if (gone := get(db, tenant, name)) is not None:
                delete(db, gone.id)
        note_change(db, SPECS)

    async def purge(self) -> None:
        """Remove the rows of deleted queues, also of those that an earlier process was removing."""
        try:
            while await self._database.write(_purge_step):
                pass
        except Unavailable as error:
            _log.warning("cannot delete rows of deleted queues before the next start: %s", error)

    async def born(self, queue_id: int, names: Sequence[str]) -> List[Partition]:
        made = await self._database.write(lambda db, now: born(db, now, queue_id, names))
        return _there(queue_id, made)

    async def born_all(self, wanted: Mapping[int, Collection[str]], *, make: bool = True) -> List[Partition]:
        def work(db: apsw.Connection, now: int) -> List[Partition]:
            return [
                partition
                for queue_id, names in wanted.items()
                for partition in born(db, now, queue_id, names, missing=make) or []
            ]

        return await (self._database.write(work) if make else self._database.read(work))

    async def set_priority(self, partition: PartitionId, priority: int) -> bool:
        lead = priority * PRIORITY_SECONDS * 1_000_000

        def work(db: apsw.Connection, now: int) -> bool:
            before: int | None = value(db, SQL["priority_lead"], partition.id)
            if before is not None and before != lead:
                db.execute(SQL["set_priority"], (lead, partition.id))
                db.execute(SQL["move_ready"], (before - lead, partition.id, min(now, now - before + lead)))
            return before is not None

        return await self._database.write(work) if partition.shard == 0 else False

    async def partition(self, id: PartitionId) -> Partition | None:
        def work(db: apsw.Connection, now: int) -> Partition | None:
            row = first(db, SQL["partition"], id.id)
            return Partition(PartitionId(0, row[0]), row[1], row[2], bool(row[3])) if row else None

        return await self._database.read(work) if id.shard == 0 else None

    async def named(self, queue_id: int, name: str) -> Partition | None:
        def work(db: apsw.Connection, now: int) -> Partition | None:
            row = first(db, SQL["named"], queue_id, name)
            return Partition(PartitionId(0, row[0]), queue_id, name, bool(row[1])) if row else None

        return await self._database.read(work)

    async def partitions(self, queue_id: int, *, after: str = "", limit: int = 1000) -> List[PartitionState]:
        def work(db: apsw.Connection, now: int) -> List[PartitionState]:
            return [_partition_state(*row) for row in rows(db, SQL["partitions"], queue_id, after, limit)]

        return await self._database.read(work)

    async def changes(self, since: int) -> tuple[int, List[int] | None]:
        def work(db: apsw.Connection, now: int) -> tuple[int, List[int] | None]:
            version = int(value(db, SQL["version"]))
            found = [queue_id for (queue_id,) in rows(db, SQL["changes"], since)]
            return version, found if len(found) == version - since else None

        return await self._database.read(work)

    async def depth(self, queue_id: int) -> int:
        def work(db: apsw.Connection, now: int) -> int | None:
            row = first(db, SQL["options_and_depth"], queue_id)
            if row is None:
                return None
            options = parse_options(row[0])
            return int(row[1]) if options.max_size else count_depth(db, queue_id, options)

        return _there(queue_id, await self._database.read(work))


def reconfigure(db: apsw.Connection, now: int, before: Queue, after: Queue) -> None:
    """Give a queue other options and labels. Conflict if it has partitions that cannot be what they would have to."""
    old, new = before.options, after.options
    if turns(old, new) and value(db, SQL["any_partition"], before.id):
        raise Conflict(TURNED)
    db.execute(SQL["configure"], (_text(new), after.namespace, after.task, before.id))
    if new.max_size and not old.max_size:
        recount_depth(db, before.id)
    if eases(old, new):
        slept = (old.delay_seconds * 1_000_000, old.window_seconds * 1_000_000)
        db.execute(SQL["wake"], (before.id, now, *slept, NEVER_AT))
    note_change(db, before.id)


def delete(db: apsw.Connection, queue_id: int) -> None:
    """Its rows are for `purge`."""
    for statement in ("delete", "delete_groups", "delete_data_keys", "insert_purge"):
        db.execute(SQL[statement], (queue_id,))
    note_change(db, queue_id)


def note_change(db: apsw.Connection, queue_id: int) -> None:
    version = value(db, SQL["changed"], queue_id)
    db.execute(SQL["forget_changes"], (version - CHANGES_MAX,))


def _there(queue_id: int, answer: T | None) -> T:
    if answer is None:
        raise NotFound(f"there is no queue with the id {queue_id}")
    return answer


def _purge_step(db: apsw.Connection, now: int) -> bool:
    """Delete some rows of a deleted queue; False when none is left of any."""
    budget = PURGE_ROWS
    queue_id = value(db, SQL["purges"])
    while queue_id is not None and budget > 0:
        partition_id = value(db, SQL["partitions_to_purge"], queue_id)
        if partition_id is None:
            db.execute(SQL["delete_purge"], (queue_id,))
            queue_id = value(db, SQL["purges"])
            continue
        budget = _drop(db, partition_id, budget)
    return budget <= 0 or queue_id is not None


def drop_partition(db: apsw.Connection, partition_id: int) -> bool:
    """Remove a partition with all that belongs to it; False if there was too much for one step."""
    return _drop(db, partition_id, PURGE_ROWS) > 0


def _drop(db: apsw.Connection, partition_id: int, budget: int) -> int:
    """Delete up to `budget` rows of a partition, itself the last; how many more might have gone."""
    for table in _TABLES:
        db.execute(SQL[f"purge_{table}"], (partition_id, budget))
        budget -= db.changes()
        if budget <= 0:
            return 0
    db.execute(SQL["purge_partitions"], (partition_id,))
    return budget - 1


def get(db: apsw.Connection, tenant: str, name: str) -> Queue | None:
    row = first(db, SQL["get"], tenant, name)
    return _queue(*row) if row else None


def make_queue(
    db: apsw.Connection, now: int, key: tuple[str, str], options: QueueOptions, labels: tuple[str, str]
) -> Queue:
    tenant, name = key
    tenant_id = value(db, SQL["tenant_id"], tenant) or value(db, SQL["insert_tenant"], tenant)
    row = (tenant_id, name, *labels, _text(options), now)
    return _queue(value(db, SQL["make"], *row), tenant, name, *labels, _text(options), now)


def born(
    db: apsw.Connection, now: int, queue_id: int, names: Collection[str], *, missing: bool = True
) -> List[Partition] | None:
    """The named partitions, those that are missing made or left out; None if the queue is gone."""
    queue = first(db, SQL["options_and_depth"], queue_id)
    if queue is None:
        return None
    unordered = parse_options(queue[0]).ordering == "unordered"
    groups = [row[0] for row in rows(db, GROUPS["list"], queue_id)]
    found = []
    for name in names:
        id = value(db, SQL["partition_id"], queue_id, name)
        if id is None and not missing:
            continue
        if id is None:
            id = value(db, SQL["insert_partition"], queue_id, name, now)
            db.executemany(GROUPS["insert_cursor"], [(id, group_id, 0, None) for group_id in groups])
        found.append(Partition(PartitionId(0, id), queue_id, name, unordered))
    return found


def _text(options: QueueOptions) -> str:
    return msgspec.json.encode(options).decode()


def _queue(id: int, tenant: str, name: str, namespace: str, task: str, *rest: Any) -> Queue:
    options, created_at = rest
    return Queue(
        id=id,
        tenant=tenant,
        name=name,
        namespace=namespace,
        task=task,
        options=parse_options(options),
        created_at=created_at,
    )


def _partition_state(id: int, name: str, start: int, head: int, last_at: int, created_at: int) -> PartitionState:
    return PartitionState(
        id=PartitionId(0, id), name=name, start=start, head=head, last_at=last_at, created_at=created_at
    )
