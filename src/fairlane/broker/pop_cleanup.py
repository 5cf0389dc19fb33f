"""Cleanup after pops: releases leases of disconnected callers, and postpones lanes that cannot be read."""

from __future__ import annotations

import asyncio

from fairlane.broker.waiters import Waiters
from fairlane.errors import SealError, ShuttingDown, StoreCorrupt, Unavailable
from fairlane.model.lease import LeaseId
from fairlane.runtime.background import BackgroundTasks
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import ClaimedLane, LaneAck, Nack

_CORRUPT_PAUSE_MS = 60_000
_SEALED_PAUSE_MS = 5_000
"""Pause of a lane that cannot be decrypted. It is shorter than for corrupt bytes, because the key may become available.
"""


class PopCleanup:
    def __init__(self, store: Store, waiters: Waiters, background: BackgroundTasks) -> None:
        self._store = store
        self._waiters = waiters
        self._background = background

    def give_back(self, lease: LeaseId) -> None:
        """Release a lease in the background, because the caller disconnected. No attempt is counted."""
        self._background.spawn(self._release(lease))

    async def _release(self, lease: LeaseId) -> None:
        for _ in range(10):
            try:
                released = await self._store.messages.release(lease)
                self._waiters.wake_group(lease.group_id, released)
                return
            except ShuttingDown:
                return
            except Unavailable:
                await asyncio.sleep(1.0)

    def postpone(self, lane: ClaimedLane, lease: LeaseId, error: StoreCorrupt) -> None:
        """Release a leased lane whose bytes cannot be read, and postpone its next claim."""
        self._background.spawn(self._postpone(lane, lease, error))

    async def _postpone(self, lane: ClaimedLane, lease: LeaseId, error: StoreCorrupt) -> None:
        pause = _SEALED_PAUSE_MS if isinstance(error, SealError) else _CORRUPT_PAUSE_MS
        partition = await self._store.queues.partition(lane.partition)
        unordered = partition is not None and partition.unordered
        nacks = [
            Nack(position, charge=False, error=str(error), delay_ms=pause)
            for position in range(lane.first, lane.upto if unordered else lane.first + 1)
        ]
        ack = LaneAck(
            partition=lane.partition, group_id=lease.group_id, token=lease.token, unordered=unordered, nacks=nacks
        )
        await self._store.messages.ack([ack])
