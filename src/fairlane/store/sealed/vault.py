"""The vault: seals and opens messages under the data keys of their queue.

A data key belongs to one queue and is used by the broker that made it, for a day or 2^30 messages at most: each
message gets a random nonce, and those must not repeat under one key. A sealed record is version, data key, nonce,
ciphertext and tag; its context is the partition and the message's id, so that no row can take another's place.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from fairlane.errors import SealError
from fairlane.model.ids import PartitionId
from fairlane.model.segment import SEALED, split_data
from fairlane.store.contract.values import Slice
from fairlane.store.families.keys import Keys, WrappedKey
from fairlane.store.sealed.keyring import KEY_BYTES, Cipher, Keyring

KEY_SECONDS: Final = 86_400
KEY_USES: Final = 2**30
_VERSION: Final = b"\x01"
_ID_BYTES: Final = 16
_END = re.compile(rb',"sealed":"([A-Za-z0-9+/]+=*)"\Z')
"""A message in clear cannot end so: its last value is `data`, and a JSON string has no bare quotes inside."""
BLOB: Final = b"\x00sealed"
"""Begins what is sealed outside of messages, where JSON begins otherwise."""


class _Active:
    """The data key that this broker seals a queue's messages with."""

    def __init__(self, id: bytes, cipher: Cipher, until_ms: int) -> None:
        self.id = id
        self.cipher = cipher
        self.until_ms = until_ms
        self.uses = 0


class NotPrepared(SealError):
    """A queue whose data key is not loaded: `prepare` must be called first."""


class Vault:
    def __init__(self, keys: Keys, keyring: Keyring | None, clock_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._keyring = keyring
        self._clock_ms = clock_ms
        self._ciphers: dict[bytes, Cipher] = {}
        self._active: dict[int, _Active] = {}
        self._making: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sealed_queues: set[int] = set()

    @property
    def can_seal(self) -> bool:
        return self._keyring is not None

    async def prepare(self, queue_id: int) -> None:
        """Have a data key to seal messages of a queue with; SealError without a key to wrap it."""
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
        """Whether what is appended to the queue by a replay is sealed: the messages of a segment are all alike."""
        return queue_id in self._active

    async def know(self, ids: Iterable[bytes]) -> None:
        """Unwrap the data keys of these ids that are not known yet, as far as that is possible."""
        missing = [id for id in set(ids) if id not in self._ciphers]
        if missing and self._keyring is not None:
            self._learn(await self._keys.get(missing))

    async def know_queue(self, queue_id: int) -> bool:
        """Unwrap all data keys of a queue; whether it has any."""
        rows = await self._keys.of_queue(queue_id)
        if self._keyring is not None:
            self._learn([row for row in rows if row.id not in self._ciphers])
        return bool(rows)

    def _learn(self, rows: Iterable[WrappedKey]) -> None:
        assert self._keyring is not None
        for row in rows:
            try:
                key = self._keyring.unwrap(row.kek, row.wrapped, _key_context(row.id, row.queue_id))
            except SealError:
                continue  # opening what it sealed says so
            self._ciphers[row.id] = Cipher(key)

    async def rewrap(self) -> int:
        """Wrap every data key under the active key that is under another one; how many."""
        done, after = 0, b""
        while self._keyring is not None:
            rows = await self._keys.under_others(self._keyring.active, after=after, limit=500)
            if not rows:
                break
            after = rows[-1].id
            for row in rows:
                context = _key_context(row.id, row.queue_id)
                try:
                    key = self._keyring.unwrap(row.kek, row.wrapped, context)
                except SealError:
                    continue
                wrapped = WrappedKey(row.id, row.queue_id, self._keyring.active, self._keyring.wrap(key, context))
                done += await self._keys.rewrap(wrapped, under=row.kek)
        return done

    def seal_data(self, queue_id: int, data: bytes, context: bytes) -> bytes:
        """A record; `prepare` was called for the queue."""
        active = self._active[queue_id]
        active.uses += 1
        head = _VERSION + active.id
        return head + active.cipher.seal(data, head + context)

    def open_data(self, record: bytes, context: bytes) -> bytes:
        head = record[: 1 + _ID_BYTES]
        if head[:1] != _VERSION:
            raise SealError(f"a sealed record has the version {head[:1].hex()}, which this Fairlane does not know")
        cipher = self._ciphers.get(head[1:])
        if cipher is None:
            raise SealError("this broker cannot have the key of a sealed message: set the encryption key it is under")
        return cipher.open(record[1 + _ID_BYTES :], head + context)

    def seal(self, queue_id: int, partition: PartitionId, fragment: bytes) -> bytes:
        """The stored form of a message with its data sealed."""
        head, data = split_data(fragment)
        record = self.seal_data(queue_id, data, _message_context(partition, fragment))
        return b'%b%b%b"' % (head, SEALED, base64.b64encode(record))

    def replayed(self, part: Slice, fragment: bytes) -> bytes:
        """The stored form of a message that comes again. NotPrepared if it must be sealed, and cannot be yet."""
        if self.is_prepared(part.queue_id):
            return self.seal(part.queue_id, part.partition, fragment)
        if part.options.encryption_enabled:
            raise NotPrepared("the queue is encrypted, and has no data key yet")
        return fragment

    def open(self, partition: PartitionId, fragment: bytes) -> bytes:
        """The stored form of a message with its data in clear, sealed or not."""
        found = _END.search(fragment)
        if found is None:
            return fragment
        data = self.open_data(base64.b64decode(found[1]), _message_context(partition, fragment))
        return b'%b,"data":%b' % (fragment[: found.start()], data)

    async def is_sealed(self, queue_id: int) -> bool:
        """Whether messages of the queue were ever sealed, so that what is noted of them must be too."""
        if queue_id not in self._sealed_queues and await self._keys.of_queue(queue_id):
            self._sealed_queues.add(queue_id)
        return queue_id in self._sealed_queues


def key_of(fragment: bytes) -> bytes | None:
    """The id of the data key that a message is sealed by; None if it is not sealed."""
    found = _END.search(fragment)
    return base64.b64decode(found[1])[1 : 1 + _ID_BYTES] if found else None


def _key_context(id: bytes, queue_id: int) -> bytes:
    return b"data key %b of queue %d" % (id, queue_id)


def _message_context(partition: PartitionId, fragment: bytes) -> bytes:
    """The message's id stands at the beginning of its stored form, always in the same place."""
    return b"%d-%d/%b" % (*partition, fragment[7:43])
