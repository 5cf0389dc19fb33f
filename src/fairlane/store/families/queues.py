"""Queues, which belong to a tenant, and their partitions. Both keep their id until they are deleted."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fairlane.errors import Conflict, NotFound, OptionsChanged, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.queue import (
    PRIORITY_SECONDS,
    TURNED,
    Partition,
    Queue,
    QueueOptions,
    changes_ordering,
    labels_of,
    may_ready_lanes,
)
from fairlane.store.families.limits import wake_keys
from fairlane.store.families.query import DatabaseTransaction, Family, Value, View, as_json, one, struct, value

if TYPE_CHECKING:
    from fairlane.store.families.specs import SpecChange

CATALOGUE: Final = 0
"""Hint, in place of a queue's id, that the catalogue changed."""
SPECS: Final = 0
"""Entry in the catalogue's changes, in place of a queue's id: a spec was applied."""
KEYS: Final = -1
"""Entry in the catalogue's changes: an API key was created, rotated or revoked, or a session began or ended."""
TENANTS: Final = -2
"""Entry in the catalogue's changes: a tenant was created, deleted or given other quotas."""
CELLS: Final = -3
"""Entry in the catalogue's changes: a cell was added, removed or changed."""
CHANGES_MAX: Final = 1000
DEFAULTS: Final = QueueOptions()
_log = logging.getLogger(__name__)


class _Changes(NamedTuple):
    version: int
    queue_ids: list[int]


class DeclaredQueue(NamedTuple):
    """A queue as declared by a spec in force."""

    app: str
    options: QueueOptions
    mapped: bool


class Queues(Family):
    async def get(self, tenant: str, name: str) -> Queue | None:
        return one(Queue, await self._runner.read("queues.get", tenant=tenant, name=name))

    async def all(self, tenant: str | None = None) -> list[Queue]:
        """Return all queues of the tenant, or of all tenants, newest first."""
        rows = await (
            self._runner.read("queues.of_all_tenants")
            if tenant is None
            else self._runner.read("queues.all", tenant=tenant)
        )
        return [struct(Queue, row) for row in rows]

    async def stamp(self, tenant: str | None) -> object:
        """Return a value that changes whenever a queue of the tenant, or of any, is created, configured or deleted."""
        [row] = await self._runner.read("queues.stamp", tenant=tenant)
        return tuple(row)

    async def ensure(
        self, tenant: str, name: str, options: QueueOptions = DEFAULTS, *, beside: str | None = None
    ) -> Queue:
        """Return the queue. If it is missing, create it with labels from its name.

        A queue that a spec in force declares gets the options of the spec and, with `map_to`, the group of its
        commands. Any other gets `options`. In a store of several cells it is created `beside` another queue.
        """
        [queue] = await self.ensure_all(tenant, [name], options=options)
        return queue

    async def ensure_all(
        self, tenant: str, names: Sequence[str], *, make: bool = True, options: QueueOptions = DEFAULTS
    ) -> list[Queue]:
        """Return the queues of these names, each once. Missing ones are created as by `ensure`, or left out.

        Raises NotFound if the tenant does not exist.
        """
        found: dict[str, Queue] = {}
        while missing := sorted(set(names).difference(found)):
            if make:
                namespaces, tasks = (list(column) for column in zip(*map(labels_of, missing), strict=True))
                labels: dict[str, Value] = {
                    "namespaces": namespaces,
                    "tasks": tasks,
                    "options": as_json(options),
                }
                rows = await self._runner.write("queues.ensure", tenant=tenant, names=missing, **labels)
            else:
                rows = await self._runner.read("queues.found", tenant=tenant, names=missing)
            found |= {queue.name: queue for queue in (struct(Queue, row) for row in rows)}
            if not make:
                break
            if not rows and not await self._runner.read("queues.tenant_id", tenant=tenant):
                raise NotFound(f"there is no tenant {tenant!r}")
        return [found[name] for name in dict.fromkeys(names) if name in found]

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
        """Create the queue, or replace all its options and labels. Messages, cursors and leases stay.

        Given the options `before` that the new ones were derived from, raises OptionsChanged if the queue has others
        now. Raises Conflict if a spec in force declares the queue encrypted and the options do not encrypt it.

        A `max_size` counts the messages that exist, exactly, even while others push.
        """

        async def work(transaction: DatabaseTransaction) -> Queue | None:
            found = [struct(Queue, row) for row in await transaction.run("queues.lock", tenant=tenant, names=[name])]
            if before is not None and [queue.options for queue in found] != [before]:
                raise OptionsChanged(name)
            # Read under the row's lock, which applying a spec takes as well.
            declared = one(DeclaredQueue, await transaction.run("queues.declared", tenant=tenant, name=name))
            if declared and declared.options.encryption_enabled and not options.encryption_enabled:
                raise Conflict(
                    f"queue {name!r} is declared encrypted by the spec of app {declared.app!r}; apply a spec without "
                    "that to store its messages in clear"
                )
            changed = [msgspec.structs.replace(q, options=options, namespace=namespace, task=task) for q in found]
            await self._reconfigure(transaction, [*zip(found, changed, strict=True)])
            await note_changes(transaction, [queue.id for queue in changed])
            return changed[0] if changed else None

        while (queue := await self._runner.transact(work)) is None:
            await self.ensure(tenant, name, options)
        return queue

    async def declared(self, tenant: str, name: str) -> QueueOptions | None:
        """Return the options that a spec in force declares for the queue, or None if none declares it."""
        found = one(DeclaredQueue, await self._runner.read("queues.declared", tenant=tenant, name=name))
        return found.options if found else None

    async def _reconfigure(self, transaction: DatabaseTransaction, changes: Sequence[tuple[Queue, Queue]]) -> None:
        """Give queues other options and labels. The caller has locked their rows.

        Raises Conflict if a queue has partitions and its ordering would change.
        """
        for before, after in changes:
            turned = changes_ordering(before.options, after.options)
            if turned and await transaction.run("queues.any_partition", queue_id=before.id):
                raise Conflict(TURNED)
            values = {"options": as_json(after.options), "namespace": after.namespace, "task": after.task}
            await transaction.run("queues.configure", queue_id=before.id, **values)
        limited = [queue.id for queue, after in changes if after.options.max_size > 0 and queue.options.max_size == 0]
        eased = [queue for queue, after in changes if may_ready_lanes(queue.options, after.options)]
        # All partitions before any cursor, in lock order.
        if touched := [*limited, *(queue.id for queue in eased)]:
            for lock in ("queues.lock_partitions", "queues.lock_cursors"):
                await transaction.lock(lock, queue_ids=touched)
        for queue_id in limited:
            await recount(transaction, queue_id)
        for queue in eased:
            slept = {"delay_seconds": queue.options.delay_seconds, "window_seconds": queue.options.window_seconds}
            await transaction.run("queues.wake", queue_id=queue.id, **slept)
            if queue.options.rate_per_key:
                await wake_keys(transaction, queue)

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete the queue with its partitions, messages, groups and dead letters. Returns False if it does not exist.

        Pushes, pops and acks fail at once. The rows are deleted in bounded steps. A queue created later under the same
        name starts empty.
        """

        async def work(transaction: DatabaseTransaction) -> bool:
            ids = [row[0] for row in await transaction.run("queues.lock", tenant=tenant, names=[name])]
            for id in ids:
                await transaction.run("queues.drop", queue_id=id)
            await note_changes(transaction, ids)
            return bool(ids)

        deleted = await self._runner.transact(work)
        await self.purge()
        return deleted

    async def declare(self, transaction: DatabaseTransaction, change: SpecChange) -> dict[str, int]:
        """Create, configure and delete the queues of a spec. Locks rows in the order of their ids.

        Returns the ids of all queues that the change names, by name, for `note_changes`.
        """
        tenant = change.tenant
        wanted = {queue.name: queue for queue in change.queues}
        for name in sorted(name for name, queue in wanted.items() if queue.before is None):
            # A new queue has its final options, so nothing needs a recount or a wake-up.
            if not await _make(transaction, tenant, name, wanted[name].after, labels_of(name)):
                raise changed_concurrently(name)
        rows = await transaction.run(
            "queues.lock", tenant=tenant, names=[*wanted, *change.queues_gone, *change.mapped, *change.unmapped]
        )
        found = [struct(Queue, row) for row in rows]
        if missing := wanted.keys() - {queue.name for queue in found}:
            raise changed_concurrently(min(missing))
        old = [queue for queue in found if queue.name in wanted and wanted[queue.name].before is not None]
        for queue in old:
            if queue.options != wanted[queue.name].before:
                raise changed_concurrently(queue.name)
        configured = [msgspec.structs.replace(queue, options=wanted[queue.name].after) for queue in old]
        await self._reconfigure(transaction, [*zip(old, configured, strict=True)])
        for queue in found:
            if queue.name in change.queues_gone:
                await transaction.run("queues.drop", queue_id=queue.id)
        return {queue.name: queue.id for queue in found}

    async def purge(self) -> None:
        """Delete the rows of deleted queues, including those that a crashed broker left behind."""
        try:
            for (queue_id,) in await self._runner.read("queues.purges"):
                while await self._runner.writes.purge_queue(queue_id):
                    pass
                await self._runner.write("queues.delete_purge", queue_id=queue_id)
        except Unavailable as error:
            _log.warning("cannot delete rows of deleted queues before the next start: %s", error)

    async def ensure_partitions(self, queue_id: int, names: Sequence[str]) -> list[Partition]:
        """Return the named partitions in the given order. Creates the missing ones, with a cursor for every group.

        Raises NotFound if the queue does not exist.
        """
        found = {partition.name: partition for partition in await self.ensure_partitions_of({queue_id: names})}
        if len(found) < len(set(names)):
            raise no_such_queue(queue_id)
        return [found[name] for name in names]

    async def ensure_partitions_of(
        self, wanted: Mapping[int, Collection[str]], *, make: bool = True
    ) -> list[Partition]:
        """Return partitions of several queues. An unknown queue has none.

        Missing partitions are created if `make` is true, and left out otherwise.
        """
        pairs = sorted({(queue_id, name) for queue_id, names in wanted.items() for name in names})
        dialect = self._runner.writes if make else self._runner.reads
        rows = await dialect.ensure_partitions([id for id, _ in pairs], [name for _, name in pairs], make=make)
        return [struct(Partition, row) for row in rows]

    async def set_priority(self, partition: PartitionId, priority: int) -> bool:
        """Set the priority of a partition, from 0 to 9. Returns False if the partition does not exist.

        Each level counts as PRIORITY_SECONDS of extra waiting time when a pop chooses a lane, also for lanes that are
        ready now. So higher priorities come first, equals by waiting time, and no lane starves.
        """
        lead: dict[str, Value] = {"partition_id": partition.id, "seconds": priority * PRIORITY_SECONDS}
        return bool(value(await self._runner.write("queues.set_priority", **lead)))

    async def partition(self, id: PartitionId, tenant: str | None = None) -> Partition | None:
        """Find a partition by its id. With a `tenant`, returns None for a partition of another tenant.

        Code that gets the id from a client must pass the tenant.
        """
        return one(Partition, await self._runner.read("queues.partition", tenant=tenant, partition_id=id.id))

    async def named(self, queue_id: int, name: str) -> Partition | None:
        """Find a partition by its name, without creating it."""
        return one(Partition, await self._runner.read("queues.named", queue_id=queue_id, name=name))

    async def changes(self, since: int) -> tuple[int, list[int] | None]:
        """Return the version of the catalogue and the queues that changed after version `since`.

        The version rises when a queue is configured or deleted. The queues are None if `since` is too long ago.
        """
        [row] = await self._runner.read("queues.changes", since=since)
        version, found = struct(_Changes, row)
        return version, found if len(found) == version - since else None

    async def note_cells(self) -> None:
        """Record that the cells of the store changed."""

        async def work(transaction: DatabaseTransaction) -> None:
            await note_changes(transaction, [CELLS])

        await self._runner.transact(work)

    async def depth(self, queue_id: int) -> int:
        """Count messages that some group has not finished. Without groups, all retained messages count."""

        async def read(view: View) -> int:
            found = await view.run("queues.depth", queue_id=queue_id)
            if not found:
                raise no_such_queue(queue_id)
            [[depth, limit]] = found
            return int(depth) if limit else await _count(view, queue_id)

        return await self._runner.view(read)


async def recount(transaction: DatabaseTransaction, queue_id: int) -> None:
    """Recount the depth of a limited queue. The caller has locked the queue's row against pushes and acks."""
    depth = await _count(transaction, queue_id)
    await transaction.run("queues.set_depth", queue_id=queue_id, depth=depth)


async def _count(view: View, queue_id: int) -> int:
    return await view.dialect.count_unfinished(queue_id)


async def _make(
    transaction: DatabaseTransaction, tenant: str, name: str, options: QueueOptions, labels: tuple[str, str]
) -> list[Queue]:
    """Create a queue. Returns nothing if it exists."""
    values = {"tenant": tenant, "name": name, "namespace": labels[0], "task": labels[1], "options": as_json(options)}
    return [struct(Queue, row) for row in await transaction.run("queues.make", **values)]


async def note_changes(transaction: DatabaseTransaction, queue_ids: Sequence[int]) -> None:
    """Raise the catalogue's version for each queue. Must be the last step of a transaction.

    Other changes wait until it commits, so that versions rise in commit order.
    """
    version = 0
    for queue_id in queue_ids:
        version = value(await transaction.run("queues.next_version"))
        await transaction.run("queues.changed", version=version, queue_id=queue_id)
    if queue_ids:
        await transaction.run("queues.forget_changes", version=version - CHANGES_MAX)


def no_such_queue(queue_id: int) -> NotFound:
    return NotFound(f"queue {queue_id} does not exist any more")


def changed_concurrently(name: str) -> Conflict:
    return Conflict(f"queue {name!r:.80} was changed meanwhile; plan again")
