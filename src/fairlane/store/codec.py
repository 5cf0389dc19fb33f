"""The codec of a store: encryption at rest for encrypted queues. Only code above the store sees plain messages.

A data key belongs to one queue and is used by the broker that created it, for at most a day or 2^30 messages, because
random nonces must not repeat under one key. A sealed record is version, data key, nonce, ciphertext and tag. Its
context is the partition and the plain part of the message, so that a row cannot be moved to another partition, and its
ids, type, headers and producer cannot be changed. The position is not part of it: messages are sealed before taking
the lock that assigns positions. So an attacker with write access can reorder, repeat or delete them in their partition.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from fairlane.errors import SealError, StoreCorrupt, after_commit
from fairlane.model.ids import PartitionId
from fairlane.model.operation import Operation
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import SEALED, Opened, Segment, checksum, ids_only, may_be_sealed, split_data
from fairlane.store.contract.failures import LockedLetter, StoredLetter
from fairlane.store.contract.operations import Application, ClaimedBacklog, NewOperation
from fairlane.store.contract.values import LaneAck, PopResult, ScheduledSlice, Slice
from fairlane.store.families.data_keys import DataKeys, WrappedKey
from fairlane.store.keyring import KEY_BYTES, Cipher, Keyring

if TYPE_CHECKING:
    from fairlane.store.families.queues import Queues

T = TypeVar("T")
KEY_SECONDS: Final = 86_400
KEY_USES: Final = 2**30
_VERSION: Final = b"\x01"
_ID_BYTES: Final = 16
_END = re.compile(rb',"sealed":"([A-Za-z0-9+/]+=*)"\Z')
"""Suffix of a sealed message. A plain one has `data` as its last value, and JSON escapes quotes in it."""
_NOT_BELIEVED: Final = "a {} lies in clear in a queue that is always sealed: it is not believed"
SEALED_DATA: Final = b"\x00sealed"
"""Prefix of sealed data outside of messages, where plain data begins with JSON."""
_LOCKED_MS: Final = 10_000
_PARTITIONS_MAX: Final = 100_000


class _Active(msgspec.Struct):
    """The data key that this broker seals a queue's messages with."""

    id: bytes
    cipher: Cipher
    until_ms: int
    uses: int = 0


class NotPrepared(SealError):
    """A queue whose data key is not loaded: `prepare` must be called first."""


class LockedSegment(Segment, frozen=True):
    """A segment that cannot be opened. Reading it raises the reason."""

    reason: str

    def check(self) -> None:
        raise SealError(self.reason)


class Codec:
    """The codec of one open store. Without a keyring it refuses to seal, and opens nothing."""

    def __init__(self, keys: DataKeys, queues: Queues, clock_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._queues = queues
        self._keyring: Keyring | None = None
        self._clock_ms = clock_ms
        self._ciphers: dict[bytes, Cipher] = {}
        self._active: dict[int, _Active] = {}
        self._making: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sealed_queues: set[int] = set()
        self.always: tuple[str, ...] = ()
        """Patterns of queues that are always sealed, and whose plain messages are rejected."""
        self._always: dict[int, bool] = {}
        self._queue_ids: dict[PartitionId, int] = {}

    @property
    def can_seal(self) -> bool:
        return self._keyring is not None

    async def set_keyring(self, keyring: Keyring | None, always: tuple[str, ...] | None = None) -> None:
        """Seal with these keys from now on, and set `always`. Rewraps data keys that the active key does not wrap."""
        self._keyring, self.always = keyring, self.always if always is None else always
        self._ciphers, self._active, after = {}, {}, b""
        while keyring is not None:
            rows = await self._keys.wrapped_by_others(keyring.active, after=after, limit=500)
            if not rows:
                break
            after = rows[-1].id
            for row in rows:
                context = _key_context(row.id, row.queue_id)
                try:
                    key = keyring.unwrap(row.kek, row.wrapped, context)
                except SealError:
                    continue
                wrapped = WrappedKey(row.id, row.queue_id, keyring.active, keyring.wrap(key, context))
                await self._keys.rewrap(wrapped, under=row.kek)

    # Queues that are always sealed.

    async def seals(self, queue_id: int, options: QueueOptions) -> bool:
        """Return True if new messages of the queue are sealed."""
        return options.encryption_enabled or (bool(self.always) and await self._is_always(queue_id))

    async def _is_always(self, queue_id: int) -> bool:
        if queue_id not in self._always:
            self._always = {
                queue.id: any(fnmatchcase(queue.name, pattern) for pattern in self.always)
                for queue in await self._queues.all()
            }
        return self._always.get(queue_id, False)

    async def _is_always_in(self, partition: PartitionId) -> bool:
        queue_id = self._queue_ids.get(partition)
        if queue_id is None:
            found = await self._queues.partition(partition)
            if found is None:
                return False
            if len(self._queue_ids) >= _PARTITIONS_MAX:
                self._queue_ids.clear()
            queue_id = self._queue_ids[partition] = found.queue_id
        return await self._is_always(queue_id)

    # Data keys.

    async def prepare(self, queue_id: int) -> None:
        """Load or create the data key of a queue. Raises SealError without a key to wrap it."""
        async with self._making[queue_id]:
            active = self._active.get(queue_id)
            if active is not None and active.uses < KEY_USES and self._clock_ms() < active.until_ms:
                return
            if self._keyring is None:
                raise SealError("the queue is encrypted and this broker has no encryption key: set one, or ask another")
            id, key = os.urandom(_ID_BYTES), os.urandom(KEY_BYTES)
            context = _key_context(id, queue_id)
            await self._keys.add(WrappedKey(id, queue_id, self._keyring.active, self._keyring.wrap(key, context)))
            cipher = self._ciphers[id] = Cipher(key)
            self._active[queue_id] = _Active(id, cipher, self._clock_ms() + KEY_SECONDS * 1000)
            self._sealed_queues.add(queue_id)

    def is_prepared(self, queue_id: int) -> bool:
        """Return True if replays into the queue are sealed. The messages of a segment are all sealed or none is."""
        return queue_id in self._active

    async def load_keys(self, fragments: Iterable[bytes]) -> None:
        """Load and unwrap the data keys of these messages. Skips keys that the keyring cannot unwrap."""
        await self._load_keys_by_id([key for fragment in fragments if (key := key_of(fragment)) is not None])

    async def _load_keys_by_id(self, ids: Iterable[bytes]) -> None:
        missing = [id for id in set(ids) if id not in self._ciphers]
        if missing and self._keyring is not None:
            self._add_ciphers(await self._keys.get(missing))

    async def replay(self, queue_id: int, run: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `run`, which replays into a queue, with all data keys of the queue loaded."""
        rows = await self._keys.of_queue(queue_id)
        self._add_ciphers([row for row in rows if row.id not in self._ciphers])
        if rows or (self.always and await self._is_always(queue_id)):
            await self.prepare(queue_id)
        try:
            return await run()
        except NotPrepared:  # encrypted after these letters were written, and without a push since
            await self.prepare(queue_id)
            return await run()

    def _add_ciphers(self, rows: Iterable[WrappedKey]) -> None:
        if (keyring := self._keyring) is None:
            return
        for row in rows:
            try:
                key = keyring.unwrap(row.kek, row.wrapped, _key_context(row.id, row.queue_id))
            except SealError:
                continue  # opening its messages raises the error
            self._ciphers[row.id] = Cipher(key)

    def _seal(self, queue_id: int, data: bytes, context: bytes) -> bytes:
        """Return a sealed record. `prepare` must have been called for the queue."""
        active = self._active[queue_id]
        active.uses += 1
        head = _VERSION + active.id
        return head + active.cipher.seal(data, head + context)

    def _open(self, record: bytes, context: bytes) -> bytes:
        head = record[: 1 + _ID_BYTES]
        if head[:1] != _VERSION:
            raise SealError(f"a sealed record has the version {head[:1].hex()}, which this Fairlane does not know")
        cipher = self._ciphers.get(head[1:])
        if cipher is None:
            raise SealError("this broker cannot have the key of a sealed message: set the encryption key it is under")
        return cipher.open(record[1 + _ID_BYTES :], head + context)

    # Messages.

    def seal_message(self, queue_id: int, partition: PartitionId, fragment: bytes) -> bytes:
        """Return the stored form of a message with its data sealed."""
        head, data = split_data(fragment)
        record = self._seal(queue_id, data, _message_context(partition, head))
        return b'%b%b%b"' % (head, SEALED, base64.b64encode(record))

    def open_message(self, partition: PartitionId, fragment: bytes) -> bytes:
        """Return the stored form of a message with plain data, whether it was sealed or not."""
        found = _END.search(fragment)
        if found is None:
            return fragment
        head = fragment[: found.start()]
        data = self._open(base64.b64decode(found[1]), _message_context(partition, head))
        return b'%b,"data":%b' % (head, data)

    def replayed(self, part: Slice, fragment: bytes) -> bytes:
        """Return the stored form of a replayed message. Raises NotPrepared if it must be sealed and cannot be yet."""
        if self.is_prepared(part.queue_id):
            return self.seal_message(part.queue_id, part.partition, fragment)
        if part.options.encryption_enabled:
            raise NotPrepared("the queue is encrypted, and has no data key yet")
        return fragment

    async def seal_slices(self, slices: Sequence[Slice]) -> list[Slice]:
        """Return the slices, those of encrypted queues sealed."""
        return [await self._sealed(part) if await self.seals(part.queue_id, part.options) else part for part in slices]

    async def _sealed(self, part: Slice) -> Slice:
        await self.prepare(part.queue_id)
        fragments = [self.seal_message(part.queue_id, part.partition, fragment) for fragment in part.fragments]
        return msgspec.structs.replace(part, fragments=fragments)

    async def seal_scheduled(self, parts: Sequence[ScheduledSlice]) -> list[ScheduledSlice]:
        """Return the slices in the form in which they will be appended."""
        slices = await self.seal_slices([part.slice for part in parts])
        return [msgspec.structs.replace(part, slice=slice) for part, slice in zip(parts, slices, strict=True)]

    async def open_lanes(self, result: PopResult) -> PopResult:
        """Open the sealed messages of a pop, in place."""
        found = [lane for lanes in result.lanes for lane in lanes]
        # A sealed message ends with a quote. Of the others only those with a string as payload do.
        if not self.always and not [1 for lane in found for one in lane.segments if one.body[-1:] == b'"']:
            return result
        with after_commit():  # the lanes are leased
            for lane in found:
                lane.segments = await self.open_segments(lane.partition, lane.segments, lane.first, lane.upto)
        return result

    async def open_segments(
        self, partition: PartitionId, segments: list[Segment], first: int, upto: int
    ) -> list[Segment]:
        """Return the segments, decrypted if they are sealed. A segment that cannot be opened stays locked."""
        always = bool(self.always) and await self._is_always_in(partition)
        if not always and not any(may_be_sealed(segment.body) for segment in segments):
            return segments
        found: list[Segment] = []
        for segment in segments:
            try:
                fragments = segment.fragments(first, upto)
                await self.load_keys(fragments)
                if always and None in map(key_of, fragments):
                    raise SealError(_NOT_BELIEVED.format("message"))
                clear = [self.open_message(partition, fragment) for fragment in fragments]
            except SealError as error:
                found.append(LockedSegment(**msgspec.structs.asdict(segment), reason=str(error)))
            except StoreCorrupt:
                found.append(segment)
            else:
                body = b"".join(clear)
                ends = list(accumulate(map(len, clear)))
                # The messages of a segment are all sealed or none is.
                kind = Opened if fragments and key_of(fragments[0]) is not None else Segment
                found.append(kind(max(segment.first, first), segment.created_at, ends, body, checksum(body)))
        return found

    async def open_letters(self, letters: Sequence[StoredLetter]) -> list[StoredLetter]:
        """Return dead letters with plain data. One that cannot be opened is returned without its data."""
        await self.load_keys(letter.message for letter in letters)
        return [self._opened(letter) for letter in letters]

    def _opened(self, letter: StoredLetter) -> StoredLetter:
        message = letter.message
        if not self.is_trusted(letter):
            with contextlib.suppress(StoreCorrupt):
                message = ids_only(message)
        try:
            return msgspec.structs.replace(letter, message=self.open_letter(letter))
        except SealError as error:
            return LockedLetter(**{**msgspec.structs.asdict(letter), "message": message, "locked": str(error)})

    def is_trusted(self, letter: StoredLetter) -> bool:
        """Return False if the letter is in clear although its queue must be encrypted."""
        if not self.always or key_of(letter.message) is not None:
            return True
        return not any(fnmatchcase(letter.queue, pattern) for pattern in self.always)

    def open_letter(self, letter: StoredLetter) -> bytes:
        """Return the stored form of its message with plain data. Raises SealError if it cannot be opened or trusted."""
        if not self.is_trusted(letter):
            raise SealError(_NOT_BELIEVED.format("dead letter"))
        return self.open_message(letter.partition, letter.message)

    # Other data with message contents: results, traces, states, effects, operations.

    async def seal(
        self, partition: PartitionId, data: bytes, what: str, *, queue_id: int | None = None, tenant: str | None = None
    ) -> bytes:
        """Seal data if messages of the partition's queue were ever sealed, or always with its own `queue_id`.

        `what` is its kind and place. The key of a queue of another `tenant` is not used.
        """
        if queue_id is None:
            found = await self._queues.partition(partition, tenant)
            if found is None or not await self._is_sealed(found.queue_id):
                return data
            queue_id = found.queue_id
        await self.prepare(queue_id)
        return SEALED_DATA + self._seal(queue_id, data, f"{partition}/{what}".encode())

    async def open(self, partition: PartitionId, data: bytes, what: str) -> bytes:
        if not data.startswith(SEALED_DATA):
            return data
        record = data.removeprefix(SEALED_DATA)
        await self._load_keys_by_id([record[1:17]])
        return self._open(record, f"{partition}/{what}".encode())

    async def _is_sealed(self, queue_id: int) -> bool:
        if queue_id not in self._sealed_queues and await self._keys.of_queue(queue_id):
            self._sealed_queues.add(queue_id)
        return queue_id in self._sealed_queues

    async def seal_all(
        self, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[Sequence[LaneAck], Sequence[Slice]]:
        """Seal the data that a transaction writes."""
        return await self.seal_acks(acks), await self.seal_slices(slices)

    async def seal_acks(self, acks: Sequence[LaneAck]) -> list[LaneAck]:
        return [await self._with_results_sealed(one) if one.results else one for one in acks]

    async def _with_results_sealed(self, ack: LaneAck) -> LaneAck:
        results = [
            (position, await self.seal(ack.partition, result, f"result {position}")) for position, result in ack.results
        ]
        return msgspec.structs.replace(ack, results=results)

    async def seal_operation(self, operation: NewOperation) -> NewOperation:
        if not await self.seals(operation.queue_id, operation.options):
            return operation
        what = f"operation {operation.id}"
        sealed = await self.seal(operation.partition, operation.payload, what, queue_id=operation.queue_id)
        return msgspec.structs.replace(operation, payload=sealed)

    async def seal_application(self, work: Application) -> Application:
        if work.slice is not None and await self.seals(work.slice.queue_id, work.slice.options):
            [part] = await self.seal_slices([work.slice])
            return msgspec.structs.replace(work, slice=part)
        if work.ack is not None and work.ack.results:
            return msgspec.structs.replace(work, ack=(await self.seal_acks([work.ack]))[0])
        return work

    async def open_operation(self, operation: Operation) -> Operation:
        payload = await self.open(operation.partition, operation.payload, f"operation {operation.id}")
        return operation if payload is operation.payload else msgspec.structs.replace(operation, payload=payload)

    async def open_backlogs(
        self, backlogs: Sequence[ClaimedBacklog], postpone: Callable[..., Awaitable[Any]]
    ) -> list[ClaimedBacklog]:
        """Open backlogs, and postpone those that only another broker has the key of."""
        found = []
        for backlog in backlogs:
            try:
                backlog.operations = [await self.open_operation(one) for one in backlog.operations]
                found.append(backlog)
            except SealError as error:
                await postpone([backlog.claim], delay_ms=_LOCKED_MS, error=str(error))
        return found


def key_of(fragment: bytes) -> bytes | None:
    """Return the id of the data key of a sealed message. None if it is not sealed."""
    found = _END.search(fragment)
    return base64.b64decode(found[1])[1 : 1 + _ID_BYTES] if found else None


def _key_context(id: bytes, queue_id: int) -> bytes:
    return b"data key %b of queue %d" % (id, queue_id)


def _message_context(partition: PartitionId, head: bytes) -> bytes:
    """Return everything in clear before the data: ids, type, headers and producer."""
    return b"%d-%d/%b" % (*partition, head)
