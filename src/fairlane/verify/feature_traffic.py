"""The traffic of fan-ins, cancellations, and messages that programs enqueue in transactions of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairlane.verify.feature_recording import FeatureRecordingClient
from fairlane.verify.history import LaneName
from fairlane.verify.recording import DeliveredMessage, payload_of
from fairlane.verify.rules import PARTITIONS

STATEMENT_SECONDS = 8.0
PARTS_MAX = 6
UNIQUE_KEYS = 3
BURST_MAX = 24
"""More than the rate of the queue allows at once."""
_LEASE_LOST = "55000"
"""SQLSTATE of a message that is finished, or no longer held by this lease."""


class FeatureTraffic:
    """Random traffic of one client process on features beside push, pop and ack."""

    def __init__(self, client: FeatureRecordingClient, run: str, store: str) -> None:
        self._client = client
        self._random = client.random
        self._run = run
        self._store = store
        self.has_database = bool(store)
        """True if programs enqueue and complete messages by functions of the database."""
        self._made = 0
        self._connection: Any = None

    def _new_id(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._run}-{self._made}"

    def _lane(self, queue: str) -> LaneName:
        return LaneName(queue, f"p{self._random.randrange(PARTITIONS[queue])}")

    async def fan_out(self) -> None:
        """Create a fan-in, and sometimes the same one again."""
        id = self._new_id("fan")
        parts = [(self._lane("parts"), f"{id}-{number}") for number in range(self._random.randint(1, PARTS_MAX))]
        await self._client.fan_in(self._client.any_broker(), id, parts, self._lane("ends"), "hands")
        await asyncio.sleep(self._random.uniform(0.1, 1.0))

    async def push_unique(self) -> None:
        """Push a message with one of a few unique keys."""
        key = f"key-{self._random.randrange(UNIQUE_KEYS)}"
        await self._client.push_unique(self._client.any_broker(), self._lane("single"), self._new_id("single"), key)
        await asyncio.sleep(self._random.uniform(0.0, 0.4))

    async def push_burst(self) -> None:
        """Push more messages at once than are delivered in one period of the rate."""
        ids = [self._new_id("paced") for _ in range(self._random.randint(BURST_MAX // 3, BURST_MAX))]
        await self._client.push(self._client.any_broker(), self._lane("paced"), ids)
        await asyncio.sleep(self._random.uniform(6.0, 14.0))

    async def cancel(self, message: DeliveredMessage) -> None:
        """Cancel a message for its group, while it is held."""
        await self._client.cancel(self._client.any_broker(), message)

    async def enqueue(self) -> None:
        """Enqueue messages in a transaction, and sometimes roll it back."""
        lane = self._lane("staged")
        ids = [self._new_id(f"staged-{lane.partition}") for _ in range(self._random.randint(1, 3))]
        commits = self._random.random() < 0.8
        await self._client.record_enqueue(lane, ids, lambda: self._transact(lane, ids, commits))
        await asyncio.sleep(self._random.uniform(0.1, 1.0))

    async def _transact(self, lane: LaneName, ids: list[str], commits: bool) -> bool:
        """Return True if the transaction was committed, and False if it was rolled back. Raises an error in doubt."""
        connection = await self._connected()
        try:
            async with asyncio.timeout(STATEMENT_SECONDS):
                transaction = connection.transaction()
                await transaction.start()
                for id in ids:
                    await connection.execute(
                        "SELECT fairlane.enqueue($1, $2::json, partition => $3, transaction_id => $4)",
                        *(self._client.named(lane.queue), msgspec.json.encode(payload_of(id)).decode()),
                        *(lane.partition, id),
                    )
                await (transaction.commit() if commits else transaction.rollback())
                self._check_replicated()
        except BaseException:
            await self.close()
            raise
        return commits

    async def complete(self, message: DeliveredMessage) -> None:
        """Complete a message by a function of the database."""
        await self._client.record_complete(message, lambda: self._complete(message))

    async def _complete(self, message: DeliveredMessage) -> bool:
        """Return False if the database refuses it. Raises an error in doubt."""
        connection = await self._connected()
        try:
            async with asyncio.timeout(STATEMENT_SECONDS):
                await connection.execute(
                    "SELECT fairlane.complete($1, $2, $3)", message.lease, message.partition_id, message.position
                )
                self._check_replicated()
        except BaseException as error:
            if getattr(error, "sqlstate", "") == _LEASE_LOST:
                return False
            await self.close()
            raise
        return True

    def _check_replicated(self) -> None:
        """Raise OutcomeUnknown if no synchronous standby has the last commit. PostgreSQL itself only warns."""
        from fairlane.store.postgres.driver import check_replicated

        check_replicated(self._connection)

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            from fairlane.store.postgres.connection import connect

            self._connection = await connect(self._store)
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None
