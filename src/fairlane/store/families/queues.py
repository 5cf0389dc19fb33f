"""Queues, which belong to a tenant, and their partitions. Both are made once and keep their id until deleted."""

from __future__ import annotations

import logging
from builtins import list as List  # the family has a verb of that name
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fairlane.errors import Conflict, NotFound, OptionsChanged, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.queue import PRIORITY_SECONDS, TURNED, Partition, Queue, QueueOptions, eases, labels_of, turns
from fairlane.store.families.port import Family, Port, Transaction, Value, View, as_json, one, struct, value

if TYPE_CHECKING:
    from fairlane.store.families.specs import SpecChange

CATALOGUE: Final = 0
"""The hint that the catalogue changed, in the place of a queue's id."""
SPECS: Final = 0
"""In the place of a queue's id among the changes of the catalogue: a spec was applied."""
KEYS: Final = -1
"""The same: an API key was made, rotated or revoked."""
TENANTS: Final = -2
"""The same: a tenant was made, given other quotas or deleted."""
CHANGES_MAX: Final = 1000
DEFAULTS: Final = QueueOptions()
_log = logging.getLogger(__name__)


class _Changes(NamedTuple):
    version: int
    queue_ids: list[int]


class DeclaredQueue(NamedTuple):
    """A queue as a spec in force declares it."""

    app: str
    options: QueueOptions
    mapped: bool


class Queues(Family):
    async def get(self, tenant: str, name: str) -> Queue | None:
        return one(Queue, await self._port.read("queues.get", tenant=tenant, name=name))

    async def list(self, tenant: str | None = None) -> List[Queue]:
        """All queues of the tenant, or of all tenants, newest first."""
        rows = await (
            self._port.read("queues.all") if tenant is None else self._port.read("queues.list", tenant=tenant)
        )
        return [struct(Queue, row) for row in rows]

    async def stamp(self, tenant: str | None) -> object:
        """Another one whenever a queue of the tenant, or of any, was made, configured or deleted."""
        [row] = await self._port.read("queues.stamp", tenant=tenant)
        return tuple(row)

    async def ensure(self, tenant: str, name: str, options: QueueOptions = DEFAULTS) -> Queue:
        """Return the queue. If it is missing, make it with labels from its name.

        A queue that a spec in force declares gets the options of the spec and, with `map_to`, the group of its
        commands. Any other gets `options`.
        """
        [queue] = await self.ensure_all(tenant, [name], options=options)
        return queue

    async def ensure_all(
        self, tenant: str, names: Sequence[str], *, make: bool = True, options: QueueOptions = DEFAULTS
    ) -> List[Queue]:
        """Return the queues of these names, each once, in one step. Missing ones are made as `ensure` makes them, or
        left out."""
        found: dict[str, Queue] = {}
        while missing := sorted(set(names).difference(found)):
            if make:
                namespaces, tasks = (list(column) for column in zip(*map(labels_of, missing), strict=True))
                labels: dict[str, Value] = {
                    "namespaces": namespaces,
                    "tasks": tasks,
                    "options": as_json(options),
                }
                rows = await self._port.write("queues.ensure", tenant=tenant, names=missing, **labels)
            else:
                rows = await self._port.read("queues.found", tenant=tenant, names=missing)
            found |= {queue.name: queue for queue in (struct(Queue, row) for row in rows)}
            if not make:
                break
            if not rows and not await self._port.read("queues.tenant_id", tenant=tenant):
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
        """Make the queue or replace all its options and labels; messages, cursors and leases stay.

        Given the options `before` that the new ones were made from, OptionsChanged if the queue has others by now.

        A `max_size` set on a queue that has messages counts those that are there, exactly, also while others push.
        Conflict if a spec in force declares the queue encrypted and the options do not encrypt it.
        """

        async def work(transaction: Transaction) -> Queue | None:
            found = [struct(Queue, row) for row in await transaction.run("queues.lock", tenant=tenant, names=[name])]
            if before is not None and [queue.options for queue in found] != [before]:
                raise OptionsChanged(name)
            # Read under the lock of the row: a spec that is applied holds it too.
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

        while (queue := await self._port.transact(work)) is None:
            await self.ensure(tenant, name, options)
        return queue

    async def declared(self, tenant: str, name: str) -> QueueOptions | None:
        """Return the options that a spec in force declares for the queue, or None if none declares it."""
        found = one(DeclaredQueue, await self._port.read("queues.declared", tenant=tenant, name=name))
        return found.options if found else None

    async def _reconfigure(self, transaction: Transaction, changes: Sequence[tuple[Queue, Queue]]) -> None:
        """Give queues, whose rows the caller holds, other options and labels. Conflict if one has partitions that
        cannot be what they would have to."""
        shards = self._port.shards
        for before, after in changes:
            if turns(before.options, after.options):
                for shard in shards:
                    if await transaction.run("queues.any_partition", shard=shard, queue_id=before.id):
                        raise Conflict(TURNED)
            values = {"options": as_json(after.options), "namespace": after.namespace, "task": after.task}
            await transaction.run("queues.configure", queue_id=before.id, **values)
        limited = [queue.id for queue, after in changes if after.options.max_size > 0 and queue.options.max_size == 0]
        eased = [queue for queue, after in changes if eases(queue.options, after.options)]
        # Partitions of all of them before any cursor, as everybody takes them.
        if touched := [*limited, *(queue.id for queue in eased)]:
            for lock in ("queues.lock_partitions", "queues.lock_cursors"):
                for shard in shards:
                    await transaction.lock(lock, shard=shard, queue_ids=touched)
        for queue_id in limited:
            await recount(self._port, transaction, queue_id)
        for queue in eased:
            slept = {"delay_seconds": queue.options.delay_seconds, "window_seconds": queue.options.window_seconds}
            for shard in shards:
                await transaction.run("queues.wake", shard=shard, queue_id=queue.id, **slept)

    async def delete(self, tenant: str, name: str) -> bool:
        """Remove the queue with its partitions, messages, groups and dead letters; False if it was not there.

        At once nothing of it can be pushed, claimed or acked; its rows go in bounded steps. A queue of the
        same name made later is another one, and empty.
        """

        async def work(transaction: Transaction) -> bool:
            ids = [row[0] for row in await transaction.run("queues.lock", tenant=tenant, names=[name])]
            for id in ids:
                await transaction.run("queues.drop", queue_id=id)
            await note_changes(transaction, ids)
            return bool(ids)

        deleted = await self._port.transact(work)
        await self.purge()
        return deleted

    async def declare(self, transaction: Transaction, change: SpecChange) -> dict[str, int]:
        """Make, configure and delete the queues of a spec. Returns the ids of all queues that the change names, by
        name, for `note_changes`. Rows are locked by id, as everybody locks them."""
        tenant = change.tenant
        wanted = {queue.name: queue for queue in change.queues}
        for name in sorted(name for name, queue in wanted.items() if queue.before is None):
            # Its options are those that it is to have: nothing of it has to be counted or woken.
            if not await _make(transaction, tenant, name, wanted[name].after, labels_of(name)):
                raise changed_meanwhile(name)
        rows = await transaction.run(
            "queues.lock", tenant=tenant, names=[*wanted, *change.queues_gone, *change.mapped, *change.unmapped]
        )
        found = [struct(Queue, row) for row in rows]
        if missing := wanted.keys() - {queue.name for queue in found}:
            raise changed_meanwhile(min(missing))
        old = [queue for queue in found if queue.name in wanted and wanted[queue.name].before is not None]
        for queue in old:
            if queue.options != wanted[queue.name].before:
                raise changed_meanwhile(queue.name)
        configured = [msgspec.structs.replace(queue, options=wanted[queue.name].after) for queue in old]
        await self._reconfigure(transaction, [*zip(old, configured, strict=True)])
        for queue in found:
            if queue.name in change.queues_gone:
                await transaction.run("queues.drop", queue_id=queue.id)
        return {queue.name: queue.id for queue in found}

    async def purge(self) -> None:
        """Remove the rows of deleted queues, also of those that a broker which died was removing."""
        try:
            for (queue_id,) in await self._port.read("queues.purges"):
                for shard in self._port.shards:
                    while value(await self._port.write("queues.purge", shard=shard, queue_id=queue_id)):
                        pass
                await self._port.write("queues.delete_purge", queue_id=queue_id)
        except Unavailable as error:
            _log.warning("cannot delete rows of deleted queues before the next start: %s", error)

    async def born(self, queue_id: int, names: Sequence[str]) -> List[Partition]:
        """The named partitions in the order asked, made empty where missing, each with a cursor for every group.

        NotFound if the queue is gone.
        """
        found = {partition.name: partition for partition in await self.born_all({queue_id: names})}
        if len(found) < len(set(names)):
            raise gone(queue_id)
        return [found[name] for name in names]

    async def born_all(self, wanted: Mapping[int, Collection[str]], *, make: bool = True) -> List[Partition]:
        """Partitions by the ids of their queues, in one step for each shard; those that are missing made, or left out.
        Of a queue that is gone there is none."""
        by_shard: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for queue_id, names in wanted.items():
            by_shard[self._shard_of(queue_id)].update((queue_id, name) for name in names)
        run = self._port.write if make else self._port.read
        found: List[Partition] = []
        for shard, pairs in sorted(by_shard.items()):
            queue_ids, names = (list(column) for column in zip(*sorted(pairs), strict=True)) if pairs else ([], [])
            rows = await run("queues.born", shard=shard, queue_ids=queue_ids, names=names, make=make)
            found += [struct(Partition, row) for row in rows]
        return found

    async def set_priority(self, partition: PartitionId, priority: int) -> bool:
        """From now on serve the lanes of a partition as if they had waited PRIORITY_SECONDS longer for each level of
        priority (0 to 9), those that are ready now too; False if it is not there. So the higher priority comes first,
        among equals who is ready longest, and nobody waits for ever."""
        where = {"shard": partition.shard, "partition_id": partition.id}
        return bool(value(await self._port.write("queues.set_priority", seconds=priority * PRIORITY_SECONDS, **where)))

    async def partition(self, id: PartitionId, tenant: str | None = None) -> Partition | None:
        """By an id; with a `tenant`, as of every id that a client names, None also of another tenant's."""
        where: dict[str, Value] = {"shard": id.shard, "partition_id": id.id}
        return one(Partition, await self._port.read("queues.partition", tenant=tenant, **where))

    async def named(self, queue_id: int, name: str) -> Partition | None:
        """The partition of this name, not made if it is missing."""
        shard = self._shard_of(queue_id)
        return one(Partition, await self._port.read("queues.named", shard=shard, queue_id=queue_id, name=name))

    async def changes(self, since: int) -> tuple[int, List[int] | None]:
        """The version of the catalogue, which rises when a queue is configured or deleted, and the queues that changed
        after version `since`; None when that is too long ago to know."""
        [row] = await self._port.read("queues.changes", since=since)
        version, found = struct(_Changes, row)
        return version, found if len(found) == version - since else None

    async def depth(self, queue_id: int) -> int:
        """Messages not yet finished by every group; all retained ones while there is no group."""

        async def look(view: View) -> int:
            found = await view.run("queues.depth", queue_id=queue_id)
            if not found:
                raise gone(queue_id)
            [[depth, limit]] = found
            return int(depth) if limit else await _count(self._port, view, queue_id)

        return await self._port.view(look)


async def recount(port: Port, transaction: Transaction, queue_id: int) -> None:
    """Count a limited queue's depth anew. The caller holds the queue's row, so that no push or ack moves it
    meanwhile."""
    depth = await _count(port, transaction, queue_id)
    await transaction.run("queues.set_depth", queue_id=queue_id, depth=depth)


async def _count(port: Port, view: View, queue_id: int) -> int:
    found = [await view.run("queues.unfinished", shard=shard, queue_id=queue_id) for shard in port.shards]
    return sum(map(value, found))


async def _make(
    transaction: Transaction, tenant: str, name: str, options: QueueOptions, labels: tuple[str, str]
) -> List[Queue]:
    """The queue, or nothing if it was there."""
    values = {"tenant": tenant, "name": name, "namespace": labels[0], "task": labels[1], "options": as_json(options)}
    return [struct(Queue, row) for row in await transaction.run("queues.make", **values)]


async def note_changes(transaction: Transaction, queue_ids: Sequence[int]) -> None:
    """Last in a transaction: until its commit other changes wait, so that versions rise in commit order."""
    version = 0
    for queue_id in queue_ids:
        version = value(await transaction.run("queues.next_version"))
        await transaction.run("queues.changed", version=version, queue_id=queue_id)
    if queue_ids:
        await transaction.run("queues.forget_changes", version=version - CHANGES_MAX)


def gone(queue_id: int) -> NotFound:
    return NotFound(f"queue {queue_id} is not there (any more)")


def changed_meanwhile(name: str) -> Conflict:
    return Conflict(f"queue {name!r:.80} was changed meanwhile; plan again")
