"""Forwarding of dead letters, into the queue that their queue names for them.

A letter that waits for that is marked in the transaction that gave its message up, so that neither is there without
the other; it is appended a moment later in a transaction that takes the mark away. Appending at once would need the
locks of another queue's partition while those of the failed lane are held, against the one order of locks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.message import Message, PushItem
from fairlane.model.moment import timestamp
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.queue import Queue, QueueOptions
from fairlane.model.segment import pack, unpack
from fairlane.store.codec import Codec, key_of
from fairlane.store.contract.values import Slice, StoredLetter
from fairlane.store.families.queues import Queues

AGAIN_SECONDS = 1
"""A letter that could not be appended (operations wait there, or its key is not to be had) is tried again then."""
HEADER = "dead-letter-of"


class Forwarding:
    """Letters for one queue, each with the partition it goes to."""

    def __init__(self, queue: Queue, partitions: dict[str, PartitionId], letters: Sequence[StoredLetter]) -> None:
        self.queue = queue
        self.letters = letters
        self._partitions = partitions

    def slices(self) -> list[Slice]:
        """One for each partition, without messages yet: to be locked."""
        partitions = sorted({self._partition(letter) for letter in self.letters})
        return [Slice(partition, self.queue.id, self.queue.options, [], [], [], [], []) for partition in partitions]

    def fill(self, slices: Sequence[Slice], ids: set[str], codec: Codec) -> dict[PartitionId, list[StoredLetter]]:
        """Put the letters of these ids into the slices, oldest failure first; which are where."""
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
    tenant: str, target: str, letters: Sequence[StoredLetter], queues: Queues, codec: Codec
) -> Forwarding:
    """The queue, made if it is missing, with the partitions and the keys that the letters need."""
    sealed = [letter.message for letter in letters if key_of(letter.message) is not None]
    queue = await queues.ensure(tenant, target, QueueOptions(encryption_enabled=bool(sealed)))
    if sealed or queue.options.encryption_enabled:
        await codec.know(sealed)
        await codec.prepare(queue.id)
    names = sorted({_partition_name(queue, letter) for letter in letters})
    born = await queues.born(queue.id, names)
    return Forwarding(queue, {partition.name: partition.id for partition in born}, letters)


def _partition_name(queue: Queue, letter: StoredLetter) -> str:
    """What was one lane stays one, so that its letters keep their order."""
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
    """The message that tells of a letter: the payload as it was pushed, and beside it what became of it."""
    clear = codec.open_letter(letter)
    try:
        old = unpack(clear, position=letter.position, created_at=letter.message_created_at)
    except StoreCorrupt:  # its bytes rotted, and its error says so
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
