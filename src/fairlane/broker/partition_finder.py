"""The partition finder of pushes: partitions are found, or made where they are missing, all that a flush needs at
once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.draft import PartitionName, PushRequest
from fairlane.errors import FairlaneError, InvalidRequest, LaneLocked, NotFound, SealError, StoreUnavailable
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.queue import Partition, Queue
from fairlane.store.contract.store import Store

_ROUNDS_MAX = 100

QueuePartition = tuple[Queue, Partition]
Refused = dict[PartitionName, FairlaneError]


class PartitionFinder:
    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue

    async def too_many(self, requests: Iterable[tuple[int, PushRequest]]) -> dict[int, FairlaneError]:
        """The requests, by their numbers, that name more than one may that is new."""
        found: dict[int, FairlaneError] = {}
        for number, request in requests:
            try:
                await self._catalogue.check_names(request.tenant, request.items)
            except FairlaneError as error:
                found[number] = error
        return found

    async def find(
        self, wanted: Mapping[tuple[str, str], Collection[str]], refused: Refused
    ) -> dict[tuple[str, str], dict[str, QueuePartition]]:
        """What was wanted, by tenant and queue, or why it cannot be had."""
        if len(wanted) > 1:  # of one queue all is found at once anyway
            await self._learn(wanted, refused)
        found: dict[tuple[str, str], dict[str, QueuePartition]] = {}
        for (tenant, name), labels in wanted.items():
            found[tenant, name] = {}
            if any((tenant, name, label) in refused for label in labels):
                continue
            try:
                found[tenant, name] = await self.partitions(tenant, name, labels, refused)
            except FairlaneError as error:
                refused |= {(tenant, name, label): error for label in labels}
        return found

    async def _learn(self, wanted: Mapping[tuple[str, str], Collection[str]], refused: Refused) -> None:
        """Find or make at once all that is not known. Where somebody holds a queue's row each is made by itself."""
        by_tenant: dict[str, list[str]] = defaultdict(list)
        for tenant, name in wanted:
            by_tenant[tenant].append(name)
        try:
            for tenant, names in by_tenant.items():
                await self._catalogue.learn_queues(tenant, names, make=True)
            known = [
                (queue, self._allowed(queue, labels))
                for (tenant, name), labels in wanted.items()
                if (queue := self._catalogue.known_queue(tenant, name)) is not None
            ]
            await self._catalogue.learn_partitions(known, make=True)
        except LaneLocked:
            pass
        except FairlaneError as error:
            refused |= {
                (tenant, name, label): error
                for (tenant, name), labels in wanted.items()
                for label in labels
                if not self._catalogue.knows(tenant, name, label)
            }

    def _allowed(self, queue: Queue, labels: Collection[str]) -> Collection[str]:
        """Those of the partitions that the queue may have."""
        if queue.options.encryption_enabled and not self._store.seals:
            return ()
        if queue.options.ordering == "fifo":
            return [label for label in labels if label == DEFAULT_PARTITION]
        return labels

    async def partitions(
        self,
        tenant: str,
        name: str,
        partitions: Collection[str],
        refused: Refused,
    ) -> dict[str, QueuePartition]:
        """Queue and partition of each name, made where missing, or why it cannot be."""
        for _ in range(_ROUNDS_MAX):
            queue = await self._catalogue.queue(tenant, name, make=True)
            assert queue is not None, "a queue that is asked to be made is there"
            if queue.options.encryption_enabled and not self._store.seals:
                raise SealError(f"queue {name!r} is encrypted and this broker has no encryption key; set one")
            allowed = self._allowed(queue, partitions)
            if len(allowed) < len(partitions):
                error = InvalidRequest(f"queue {name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
                refused |= {(tenant, name, label): error for label in partitions if label != DEFAULT_PARTITION}
            try:
                found = await self._catalogue.partitions(queue, allowed)
            except NotFound:
                self._catalogue.forget(queue.id)
                continue
            return {label: (queue, partition) for label, partition in found.items()}
        raise StoreUnavailable(f"queue {name!r} kept being deleted under this push; try again")
