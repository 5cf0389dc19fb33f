"""Forwarding of dead letters to the queue that their queue names for them.

A letter to forward is marked in the transaction that dead-letters its message, so that neither exists without the
other. A moment later another transaction appends it and removes the mark. Appending it at once would lock another
queue's partition while the failed lane is locked, which violates the order of locks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.message import Message, PushItem
from fairlane.model.moment import timestamp
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.queue import Partition, Queue, QueueOptions
from fairlane.model.segment import pack, unpack
from fairlane.store.codec import Codec, key_of
from fairlane.store.contract.failures import StoredLetter
from fairlane.store.contract.values import Slice

AGAIN_SECONDS = 1
"""Delay before a letter that could not be appended is retried, because operations wait there or its key is missing."""
HEADER = "dead-letter-of"


class TargetQueues(Protocol):
    """The part of the queues family that forwarding needs."""

    async def ensure(self, tenant: str, name: str, options: QueueOptions, /) -> Queue: ...

    async def ensure_partitions(self, queue_id: int, names: Sequence[str], /) -> list[Partition]: ...


class Forwarding:
    """Letters for one queue, each with its target partition."""

    def __init__(self, queue: Queue, partitions: dict[str, PartitionId], letters: Sequence[StoredLetter]) -> None:
        self.queue = queue
        self.letters = letters
        self._partitions = partitions

    def slices(self) -> list[Slice]:
        """Return an empty slice for each partition, to lock them."""
        partitions = sorted({self._partition(letter) for letter in self.letters})
        return [Slice(partition, self.queue.id, self.queue.options, [], [], [], [], []) for partition in partitions]

    def fill(self, slices: Sequence[Slice], ids: set[str], codec: Codec) -> dict[PartitionId, list[StoredLetter]]:
        """Add the letters with these ids to the slices, oldest failure first. Returns the letters by partition."""
        placed: dict[PartitionId, list[StoredLetter]] = defaultdict(list)
        for letter in sorted(self.letters, key=lambda one: (one.failed_at, one.position)):
            if letter.id in ids:
                placed[self._partition(letter)].append(letter)
        for part in slices:
            _fill(part, placed[part.partition], codec)
        return placed

    def _partition(self, letter: StoredLetter) -> PartitionId:
        return self._partitions[_partition_name(self.queue, letter)]


async def prepare(
    tenant: str, target: str, letters: Sequence[StoredLetter], queues: TargetQueues, codec: Codec
) -> Forwarding:
    """Create the queue if it is missing, and load the partitions and keys that the letters need."""
    sealed = [letter.message for letter in letters if key_of(letter.message) is not None]
    queue = await queues.ensure(tenant, target, QueueOptions(encryption_enabled=bool(sealed)))
    if sealed or queue.options.encryption_enabled:
        await codec.load_keys(sealed)
        await codec.prepare(queue.id)
    names = sorted({_partition_name(queue, letter) for letter in letters})
    partitions = await queues.ensure_partitions(queue.id, names)
    return Forwarding(queue, {partition.name: partition.id for partition in partitions}, letters)


def _partition_name(queue: Queue, letter: StoredLetter) -> str:
    """Return the name of the target partition. Letters of one lane share it, so that they keep their order."""
    return DEFAULT_PARTITION if queue.options.ordering == "fifo" else letter.partition_name


def _fill(part: Slice, letters: Sequence[StoredLetter], codec: Codec) -> None:
    # The messages of a segment are all sealed or none is.
    sealed = part.options.encryption_enabled or any(key_of(letter.message) is not None for letter in letters)
    for letter in letters:
        id = uuid7()
        fragment = pack(id, id, _item(letter, codec))
        if sealed:
            fragment = codec.seal_message(part.queue_id, part.partition, fragment)
        part.add(id, fragment)


def _item(letter: StoredLetter, codec: Codec) -> PushItem:
    """Return the message for a letter: the original payload, with headers about its failure."""
    clear = codec.open_letter(letter)
    try:
        old = unpack(clear, position=letter.position, created_at=letter.message_created_at)
    except StoreCorrupt:  # its bytes are corrupt, and its error says so
        old = Message(id="", transaction_id="", raw=msgspec.Raw(b"null"))
    payload = {
        "original_message": old.raw,
        "failed_at": timestamp(letter.failed_at),
        "error": letter.error,
        "attempts": letter.attempts,
        "first_failed_at": timestamp(letter.first_failed_at),
        "errors": [{"at": timestamp(one.at), "error": one.error} for one in letter.errors],
        "source": {
            "queue": letter.queue,
            "partition": letter.partition_name,
            "group": letter.group,
            "deadLetterId": letter.id,
            "id": old.id,
            "transactionId": old.transaction_id,
            "traceId": old.trace_id,
            "type": old.type,
            "headers": old.headers,
            "createdAt": timestamp(letter.message_created_at),
        },
    }
    headers = {**(old.headers or {}), HEADER: old.transaction_id}
    return PushItem(queue="", payload=msgspec.json.encode(payload), trace_id=old.trace_id, headers=headers)
