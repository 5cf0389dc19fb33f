"""The catalogue: a cache of queues, partitions and groups. The store reports when it is stale."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from fairlane.broker.push_batch import PartitionName
from fairlane.broker.tenants import Tenants
from fairlane.errors import FairlaneError, InvalidRequest, LaneLocked, NotFound, SealError, StoreUnavailable
from fairlane.model.group import Group, Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEW_NAMES_MAX
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION, check_name
from fairlane.model.queue import Partition, Queue, QueueOptions
from fairlane.store.contract.store import Store

_QUEUE_SECONDS = 5.0
"""Time after which a queue's options are read again, because another broker may have changed them."""
_ENTRIES_MAX = 200_000

_ROUNDS_MAX = 100

Wanted = Mapping[tuple[str, str], Collection[str]]
"""Names of partitions, by tenant and queue."""
Found = dict[tuple[str, str], tuple[Queue, dict[str, Partition]]]
Refused = dict[PartitionName, FairlaneError]

Key = TypeVar("Key")
Value = TypeVar("Value")


def _remember(memory: dict[Key, Value], key: Key, value: Value) -> None:
    """Add an entry. A full cache drops its older half."""
    if len(memory) >= _ENTRIES_MAX:
        for old in list(memory)[: _ENTRIES_MAX // 2]:
            del memory[old]
    memory[key] = value


class Catalogue:
    def __init__(self, store: Store, tenants: Tenants, declared: Callable[[str, str], QueueOptions | None]) -> None:
        """Create the catalogue. `declared` returns the options that a spec in force declares for a queue."""
        self._store = store
        self._tenants = tenants
        self.queues: dict[tuple[str, str], tuple[Queue, float]] = {}
        self._partitions: dict[tuple[int, str], Partition] = {}
        self.by_id: dict[tuple[str, PartitionId], Partition] = {}
        """Partitions by tenant and id. A tenant cannot see partitions of another."""
        self.groups: dict[tuple[int, str], Group] = {}
        self.queue_names: dict[int, str] = {}
        self._seen: dict[tuple[str, str], Queue] = {}
        """Queues as last seen, also after they were dropped from the cache, for use while the store is unavailable."""
        self._declared = declared
        self._queue_of: dict[tuple[str, int], int] = {}
        """Queues by tenant and group."""

    def known(self, wanted: Wanted) -> Found | None:
        """Return the wanted queues and partitions if all of them are cached and valid, else None."""
        found: Found = {}
        now = time.monotonic()
        for (tenant, name), labels in wanted.items():
            queue, until = self.queues.get((tenant, name), (None, 0.0))
            if queue is None or until <= now or queue.options.encryption_enabled:
                return None
            if queue.options.ordering == "fifo" and list(labels) != [DEFAULT_PARTITION]:
                return None
            partitions = [self._partitions.get((queue.id, label)) for label in labels]
            if None in partitions:
                return None
            found[tenant, name] = queue, dict(zip(labels, partitions, strict=True))  # type: ignore[arg-type]
        return found

    async def find(self, wanted: Wanted, refused: Refused) -> Found:
        """Return what is wanted, created if missing, in one call; or the errors."""
        if len(wanted) > 1:  # a single queue is found in one call anyway
            await self._learn(wanted, refused)
        found: Found = {}
        for (tenant, name), labels in wanted.items():
            rest = [label for label in labels if (tenant, name, label) not in refused]
            if not rest:
                continue
            try:
                found[tenant, name] = await self.find_queue(tenant, name, rest, refused)
            except FairlaneError as error:
                refused |= {(tenant, name, label): error for label in rest}
        return found

    async def find_queue(
        self, tenant: str, name: str, labels: Collection[str], refused: Refused
    ) -> tuple[Queue, dict[str, Partition]]:
        """Return the queue and its partitions of these names, created if missing."""
        for _ in range(_ROUNDS_MAX):
            queue = await self.queue(tenant, name, make=True)
            assert queue is not None, "a missing queue is created"
            if queue.options.encryption_enabled and not self._store.seals:
                raise SealError(f"queue {name!r} is encrypted and this broker has no encryption key; set one")
            allowed = self._allowed(queue, labels)
            if len(allowed) < len(labels):
                error = InvalidRequest(f"queue {name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
                refused |= {(tenant, name, label): error for label in labels if label != DEFAULT_PARTITION}
            try:
                return queue, await self.partitions(queue, allowed)
            except NotFound:
                self.forget(queue.id)
        raise StoreUnavailable(f"queue {name!r} was deleted repeatedly during this push; try again")

    async def _learn(self, wanted: Wanted, refused: Refused) -> None:
        """Find or create everything that is not cached, in one call. If a queue's row is locked, one by one."""
        by_tenant: dict[str, list[str]] = defaultdict(list)
        for tenant, name in wanted:
            by_tenant[tenant].append(name)
        try:
            for tenant, names in by_tenant.items():
                await self.learn_queues(tenant, names, make=True)
            known = [
                (queue, self._allowed(queue, labels))
                for (tenant, name), labels in wanted.items()
                if (queue := self.known_queue(tenant, name)) is not None
            ]
            await self.learn_partitions(known, make=True)
        except LaneLocked:
            pass
        except FairlaneError as error:
            refused |= {
                (tenant, name, label): error
                for (tenant, name), labels in wanted.items()
                for label in labels
                if not self.knows(tenant, name, label)
            }

    def _allowed(self, queue: Queue, labels: Collection[str]) -> Collection[str]:
        """Return the partitions that the queue may have."""
        if queue.options.encryption_enabled and not self._store.seals:
            return ()
        if queue.options.ordering == "fifo":
            return [label for label in labels if label == DEFAULT_PARTITION]
        return labels

    async def queue(self, tenant: str, name: str, *, make: bool) -> Queue | None:
        """Return the queue. If it is missing, it is created, or None is returned."""
        known = self.known_queue(tenant, name)
        if known is not None:
            return known
        if make:
            await self.allow(tenant, name)
        queues = self._store.queues
        queue = await (queues.ensure(tenant, name) if make else queues.get(tenant, name))
        if queue is not None:
            self.remember(queue)
        return queue

    async def allow(self, tenant: str, *names: str) -> None:
        """Raise QuotaReached if creating the missing queues among `names` would exceed the quota of the tenant."""
        if self._tenants.limits(tenant, "queues"):
            there = await self._store.queues.ensure_all(tenant, names, make=False)
            await self._tenants.check(tenant, "queues", len(set(names)) - len(there))

    def known_queue(self, tenant: str, name: str) -> Queue | None:
        """Return the queue if it was read a moment ago, else None."""
        known = self.queues.get((tenant, name))
        return known[0] if known is not None and known[1] > time.monotonic() else None

    async def learn_queues(self, tenant: str, names: Iterable[str], *, make: bool) -> None:
        """Cache all of these queues in one call. Missing ones are created or left out."""
        unknown = [name for name in names if self.known_queue(tenant, name) is None]
        if unknown:
            if make:
                await self.allow(tenant, *unknown)
            for queue in await self._store.queues.ensure_all(tenant, unknown, make=make):
                self.remember(queue)

    async def learn_partitions(self, wanted: Iterable[tuple[Queue, Iterable[str]]], *, make: bool) -> None:
        """Cache all of these partitions in one call. Missing ones are created or left out."""
        unknown: dict[int, list[str]] = {}
        tenants: dict[int, str] = {}
        for queue, names in wanted:
            if some := [name for name in names if (queue.id, name) not in self._partitions]:
                unknown[queue.id], tenants[queue.id] = some, queue.tenant
        if unknown:
            if make:
                await self._check_partitions(unknown, tenants)
            for partition in await self._store.queues.ensure_partitions_of(unknown, make=make):
                self._add(tenants[partition.queue_id], partition)

    async def _check_partitions(self, wanted: Mapping[int, Collection[str]], tenants: Mapping[int, str]) -> None:
        """Raise QuotaReached if these are more new partitions than their tenant may have."""
        limited = {id: names for id, names in wanted.items() if self._tenants.limits(tenants[id], "partitions")}
        if limited:
            new = Counter({tenants[id]: 0 for id in limited})
            for id, names in limited.items():
                new[tenants[id]] += len(set(names))
            for partition in await self._store.queues.ensure_partitions_of(limited, make=False):
                new[tenants[partition.queue_id]] -= 1
            for tenant, count in new.items():
                await self._tenants.check(tenant, "partitions", count)

    def recall(self, tenant: str, name: str) -> Queue | None:
        """Return the queue as last seen, however long ago, without I/O."""
        return self._seen.get((tenant, name))

    def recall_options(self, tenant: str, name: str) -> QueueOptions | None:
        """Return the last known options of the queue, or those its spec declares, without reading the store.

        Returns None if the queue is unknown.
        """
        known = self._seen.get((tenant, name))
        return known.options if known else self._declared(tenant, name)

    def recollect(self, queues: Iterable[Queue]) -> None:
        """Take over queues that the store or the journal just listed, for `recall` only."""
        self._seen.update({(queue.tenant, queue.name): queue for queue in queues})

    def known_names(self, tenant: str, id: PartitionId) -> tuple[str | None, str | None]:
        """Return the names of a partition's queue and of the partition, without I/O."""
        partition = self.by_id.get((tenant, id))
        return (self.queue_names.get(partition.queue_id), partition.name) if partition else (None, None)

    def remember(self, queue: Queue) -> None:
        _remember(self.queues, (queue.tenant, queue.name), (queue, time.monotonic() + _QUEUE_SECONDS))
        _remember(self.queue_names, queue.id, queue.name)
        _remember(self._seen, (queue.tenant, queue.name), queue)

    def knows(self, tenant: str, name: str, label: str) -> bool:
        queue = self.known_queue(tenant, name)
        return queue is not None and (queue.id, label) in self._partitions

    async def check_names(self, tenant: str, items: Sequence[PushItem]) -> None:
        """Raise InvalidRequest if these items name more new queues and partitions than one request may create."""
        if len(items) <= NEW_NAMES_MAX:
            return
        named: dict[str, dict[str, None]] = {}
        for item in items:
            if not self.knows(tenant, item.queue, item.partition):
                named.setdefault(item.queue, {})[item.partition] = None
        if sum(map(len, named.values())) <= NEW_NAMES_MAX:
            return
        await self.learn_queues(tenant, named, make=False)
        known = [(queue, labels) for name, labels in named.items() if (queue := self.known_queue(tenant, name))]
        await self.learn_partitions(known, make=False)
        new = sum(not self.knows(tenant, name, label) for name, labels in named.items() for label in labels)
        if new > NEW_NAMES_MAX:
            raise InvalidRequest(
                f"one request may create at most {NEW_NAMES_MAX} queues and partitions, and this one would create "
                f"{new}; push to fewer of them at a time"
            )

    async def existing(self, tenant: str, name: str) -> Queue:
        """Return the queue. Raises NotFound."""
        queue = await self.queue(tenant, check_name("queue", name), make=False)
        if queue is None:
            raise NotFound(f"there is no queue {name!r}")
        return queue

    async def existing_group(self, queue: Queue, name: str) -> Group:
        """Return the group from the store. Raises NotFound."""
        group = await self._store.groups.get(queue.id, check_name("group", name))
        if group is None:
            raise NotFound(f"queue {queue.name!r} has no group {name!r}")
        return group

    async def existing_partition(self, queue: Queue, name: str | None) -> PartitionId | None:
        """Return the id of the partition of this name. None without a name. Raises NotFound."""
        if name is None:
            return None
        partition = await self._store.queues.named(queue.id, check_name("partition", name))
        if partition is None:
            raise NotFound(f"queue {queue.name!r} has no partition {name!r}")
        return partition.id

    def known_partition(self, queue: Queue, name: str) -> Partition | None:
        return self._partitions.get((queue.id, name))

    async def partitions(self, queue: Queue, names: Collection[str]) -> dict[str, Partition]:
        """Return the partitions of these names, created if missing."""
        found = {name: known for name in names if (known := self._partitions.get((queue.id, name))) is not None}
        missing = [name for name in names if name not in found]
        if missing:
            await self._check_partitions({queue.id: missing}, {queue.id: queue.tenant})
            for partition in await self._store.queues.ensure_partitions(queue.id, missing):
                self._add(queue.tenant, partition)
                found[partition.name] = partition
        return found

    async def partition(self, tenant: str, id: PartitionId) -> Partition | None:
        known = self.by_id.get((tenant, id))
        if known is None:
            known = await self._store.queues.partition(id, tenant)
            if known is not None:
                self._add(tenant, known)
        return known

    def remember_partition(self, queue: Queue, id: PartitionId, name: str) -> None:
        """Cache a partition whose messages were popped, so that their acks need not look it up."""
        self._add(queue.tenant, Partition(id, queue.id, name, queue.options.ordering == "unordered"))

    async def names(self, tenant: str, id: PartitionId) -> tuple[str | None, str | None]:
        """Return the names of a partition and of its queue. None for names that are not known."""
        partition = await self.partition(tenant, id)
        if partition is None:
            return None, None
        return self.queue_names.get(partition.queue_id), partition.name

    def _add(self, tenant: str, partition: Partition) -> None:
        _remember(self._partitions, (partition.queue_id, partition.name), partition)
        _remember(self.by_id, (tenant, partition.id), partition)

    async def group(self, queue: Queue, name: str, subscription: Subscription) -> Group:
        """Return the group, created by `subscription` at its first pop. A consumer takes over a person's group."""
        known = self.groups.get((queue.id, name))
        if known is None or (known.subscription.look and not subscription.look):
            if self._tenants.limits(queue.tenant, "groups") and not await self._store.groups.get(queue.id, name):
                await self._tenants.check(queue.tenant, "groups", 1)
            known = await self._store.groups.subscribe(queue.id, name, subscription)
            self._keep(known)
        return known

    async def group_id(self, queue_id: int, name: str) -> int | None:
        known = self.groups.get((queue_id, name))
        if known is None:
            known = await self._store.groups.get(queue_id, name)
            if known is not None:
                self._keep(known)
        return known.id if known else None

    def _keep(self, group: Group) -> None:
        _remember(self.groups, (group.queue_id, group.name), group)

    async def queue_of(self, tenant: str, group_id: int) -> int | None:
        """Return the queue of a group. None for a group of another tenant, because lease ids contain group ids."""
        known = self._queue_of.get((tenant, group_id))
        if known is None:
            known = await self._store.groups.queue_of(tenant, group_id)
            if known is not None:
                _remember(self._queue_of, (tenant, group_id), known)
        return known

    async def owned(self, tenant: str, id: PartitionId) -> PartitionId:
        """Return the id of a partition of the tenant. Raises NotFound."""
        if await self.partition(tenant, id) is None:
            raise NotFound(f"there is no partition {id}")
        return id

    def forget(self, queue_id: int) -> None:
        """Drop everything about a queue that was deleted or changed, or that the store does not know."""
        self.queues = {key: entry for key, entry in self.queues.items() if entry[0].id != queue_id}
        self.groups = {key: group for key, group in self.groups.items() if key[0] != queue_id}
        self._partitions = {key: part for key, part in self._partitions.items() if key[0] != queue_id}
        self.by_id = {key: part for key, part in self.by_id.items() if part.queue_id != queue_id}

    def forget_all(self) -> None:
        """Drop everything that may have changed."""
        for memory in (self.queues, self.groups, self._partitions, self.by_id):
            memory.clear()

    def forget_group(self, queue_id: int, name: str) -> None:
        self.groups.pop((queue_id, name), None)
