"""The traffic of a run: producers, consumers that misbehave, and an administrator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zlib import crc32

from fairlane.model.ids import least_uuid7
from fairlane.verify.feature_recording import FeatureRecordingClient
from fairlane.verify.feature_traffic import FeatureTraffic
from fairlane.verify.history import Fate, LaneName
from fairlane.verify.recording import DeliveredMessage, RecordingClient
from fairlane.verify.requester import EXPECTED
from fairlane.verify.rules import BESIDE, GROUPS, LEASE_SECONDS, OPTIONS, PARTITIONS, RULES, SLOW, TOKENS

DEEDS = ["crash", "slow", "extend", "part", "part", "fail", "fail", "cancel"]
READS = [
    "/api/v1/resources/queues/{queue}/depth",
    "/api/v1/explain/{queue}/p0",
    "/api/v1/messages?queue={queue}&limit=5",
    "/api/v1/operations/stats",
    "/api/v1/findings",
    "/api/v1/leases",
    "/metrics",
]
TRIES_MAX = 120
CHAIN_MAX = 5
"""Batches that a consumer handles one after another with one request each."""
_FOUND = EXPECTED | {404}


class Traffic:
    """The random traffic of one client process. While `draining`, it only finishes the messages that are left."""

    def __init__(
        self, client: FeatureRecordingClient, number: int, processes: int, run: str, features: FeatureTraffic
    ) -> None:
        self._client = client
        self._features = features
        self._random = client.random
        self._number = number
        self._processes = processes
        self._run = run
        self._replayed: dict[str, Fate] = {}
        self.draining = False
        self._stopped = False
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start this process's share of all clients."""
        shares = 0
        for queue in ("plain", "poison", "auto", "mixed", "later", "few", "keyed", "brief", "sealed"):
            for partition in range(PARTITIONS[queue]):
                for producer in range(2):
                    shares += 1
                    if shares % self._processes == self._number:
                        lane = LaneName(queue, f"p{partition}")
                        self._repeat(self._producer(lane, producer), while_draining=False)
        for queue, group in GROUPS:
            self._repeat(self._consumer(queue, group))
        self._repeat(self._features.push_unique, while_draining=False)
        self._repeat(self._features.push_burst, while_draining=False)
        self._repeat(self._features.fan_out, while_draining=False)
        if self._features.has_database:
            self._repeat(self._features.enqueue, while_draining=False)
        if self._number == 0:
            self._repeat(self._auto_consumer("auto", "once"))
            self._repeat(self._auto_consumer("plain", "replay"))
            self._repeat(self._administrator, while_draining=False)

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._running)

    def _repeat(self, step: Callable[[], Awaitable[None]], *, while_draining: bool = True) -> None:
        async def forever() -> None:
            while not self._stopped and (while_draining or not self.draining):
                await step()

        self._running.append(asyncio.create_task(forever()))

    def _timed_id(self) -> str:
        least = least_uuid7(time.time_ns() // 1_000_000)
        return str(UUID(int=least.int | self._random.getrandbits(62)))

    def _producer(self, lane: LaneName, number: int) -> Callable[[], Awaitable[None]]:
        broker, made = number % self._client.brokers, 0

        async def step() -> None:
            nonlocal made
            ids = []
            for _ in range(self._random.randint(1, 5)):
                made += 1
                kind = "poison" if lane.queue == "poison" and self._random.random() < 0.2 else "message"
                # Brokers look up ids that carry their time in another way than ids that do not.
                timed = kind == "message" and number == 1
                ids.append(self._timed_id() if timed else f"{kind}-{self._run}-{lane.partition}-{number}-{made}")
            options: dict[str, Any] = {}
            if lane.queue == "later":
                # Not `delayMs`, which counts from the clock of the store, be it wrong.
                due = datetime.now(UTC) + timedelta(seconds=self._random.uniform(0.1, 3.0))
                options["deliverAt"] = due.isoformat()
            if lane.queue == "mixed":
                options["any_priority"] = True
            accepted = await self._client.push(broker, lane, ids, **options)
            if accepted and self._random.random() < 0.05:
                # Known ids store nothing. Another broker does not know those in the journal of this one.
                body = {"items": self._client.items(lane, ids, options)}
                await self._client.ask(broker, "POST", "/api/v1/push", body)
            await asyncio.sleep(self._random.uniform(0.0, 3.0 if lane.queue in SLOW else 1.0))

        return step

    def _consumer(self, queue: str, group: str) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            broker = self._client.any_broker()
            batch = 200 if self.draining else self._random.randint(1, 12)
            where = queue
            if self._random.random() < 0.2 and queue in RULES.ordered:
                where = f"{queue}/partition/p{self._random.randrange(PARTITIONS[queue])}"
            partitions = {} if "/" in where else {"partitions": self._random.randint(1, 3)}
            messages = await self._client.pop(broker, where, group, batch=batch, **partitions)
            if not messages:
                await asyncio.sleep(0.05)
            for _ in range(CHAIN_MAX):
                if not messages or self._stopped:
                    break
                messages = await self._handle(queue, messages)

        return step

    async def _handle(self, queue: str, messages: list[DeliveredMessage]) -> list[DeliveredMessage]:
        """Settle messages. Returns the next ones if they were popped in the same request."""
        broker = self._client.any_broker()
        if queue == "bank" and not self.draining:
            await self._move(broker, messages)
            return []
        return await (
            self._complete_until_poison(broker, messages) if queue == "poison" else self._settle(broker, messages)
        )

    async def _ack(self, broker: int, messages: list[DeliveredMessage], statuses: list[str]) -> list[DeliveredMessage]:
        """Ack messages, and pop the next ones in half of the requests. A stopped client pops none."""
        if self._stopped or self._random.random() < 0.5:
            await self._client.ack(broker, messages, statuses)
            return []
        batch = 200 if self.draining else self._random.randint(1, 12)
        queue = messages[0].lane.queue
        return await self._client.ack_and_pop(broker, messages, statuses, queue, batch=batch, partitions=3)

    async def _settle(self, broker: int, messages: list[DeliveredMessage]) -> list[DeliveredMessage]:
        """Complete the messages, or misbehave. Returns the next messages if they were popped in the same request."""
        following: list[DeliveredMessage] = []
        deed = "complete" if self.draining else self._random.choice(["complete"] * 12 + DEEDS)
        if deed == "crash":
            return []
        queue = messages[0].lane.queue
        if deed == "cancel":
            if queue == "mixed":
                await self._features.cancel(messages.pop(0))
        elif queue == "staged" and self._features.has_database and self._random.random() < 0.3:
            for one in messages:
                await self._features.complete(one)
            return []
        if deed == "slow":
            await asyncio.sleep(LEASE_SECONDS * self._random.uniform(0.8, 1.6))
        elif deed == "extend":
            path = f"/api/v1/lease/{messages[0].lease}/extend"
            await self._client.ask(broker, "POST", path, {"seconds": 5}, expected=_FOUND)
        count = len(messages) if deed not in ("part", "fail") else self._random.randint(0, len(messages) - 1)
        # A partition that is acked in part is acked from its beginning.
        if count:
            following = await self._ack(broker, messages[:count], ["completed"] * count)
        if deed == "fail":
            await self._client.ack(broker, messages[count : count + 1], [self._random.choice(["failed", "retry"])])
        elif deed == "part" and self._random.random() < 0.5:
            await self._client.release(broker, messages[0])
        return following

    async def _complete_until_poison(self, broker: int, messages: list[DeliveredMessage]) -> list[DeliveredMessage]:
        """Complete the messages of each partition up to the first poisonous one, and fail that.

        A replayed message is completed.
        """
        named, statuses, failed = [], [], set()
        for one in messages:
            if one.lane in failed:
                continue
            named.append(one)
            poisonous = one.id.startswith("poison") and one.original == one.id
            statuses.append("failed" if poisonous else "completed")
            if poisonous:
                failed.add(one.lane)
        return await self._ack(broker, named, statuses)

    async def _move(self, broker: int, messages: list[DeliveredMessage]) -> None:
        for one in messages:
            token, _, hop = one.id.rpartition("-")
            following = f"{token}-{int(hop) + 1}"
            await self._client.move(broker, one, lane_of_hop(following), following)
            if self._random.random() < 0.05:
                return

    def _auto_consumer(self, queue: str, group: str) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            await self._client.pop(self._client.any_broker(), queue, group, autoAck=True, batch=500)
            await asyncio.sleep(0.1)

        return step

    async def _administrator(self) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 1.5))
        ask, broker = self._client.ask, self._client.any_broker()
        queue = self._random.choice(list(OPTIONS))
        name = self._client.named(queue)
        deed = self._random.randrange(7)
        if deed == 0:
            await ask(broker, "POST", f"/api/v1/queues/{name}/pause", {})
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
            await resume(self._client, queue)
        elif deed == 1:
            where = f"/api/v1/consumer-groups/replay/queues/{self._client.named('plain')}/seek"
            await ask(broker, "POST", where, {"toBeginning": True}, expected=_FOUND)
        elif deed == 2:
            await self._replay_a_letter(broker)
        elif deed == 3:
            await ask(broker, "POST", "/api/v1/configure", {"queue": name, "options": OPTIONS[queue]})
        elif deed == 4:
            where = f"/api/v1/consumer-groups/replay/queues/{self._client.named('plain')}"
            await ask(broker, "DELETE", where, expected=_FOUND)
        elif deed == 5:
            await self._scratch(broker)
        else:
            for path in READS:
                await ask(broker, "GET", path.format(queue=name), expected=_FOUND)

    async def _scratch(self, broker: int) -> None:
        """Create a queue with messages, and delete it while they are popped."""
        name = self._client.named("scratch")
        items = [{"queue": name, "payload": number} for number in range(20)]
        await self._client.ask(broker, "POST", "/api/v1/push", {"items": items})
        await asyncio.gather(
            self._client.ask(broker, "GET", f"/api/v1/pop/queue/{name}", batch=5, expected=_FOUND),
            self._client.ask(self._client.any_broker(), "DELETE", f"/api/v1/resources/queues/{name}", expected=_FOUND),
        )

    async def _replay_a_letter(self, broker: int) -> None:
        queue = self._client.named("poison")
        found = await self._client.ask(broker, "GET", "/api/v1/dlq", queue=queue, replayed="false", limit=5)
        for letter in found.body["messages"] if found.status == 200 else ():
            id = letter["transactionId"]
            if id.startswith("poison") and self._replayed.get(id) != "done":
                self._replayed[id] = await self._client.replay(broker, "poison", letter["id"], id)


def lane_of_hop(id: str) -> LaneName:
    """Return the partition of a hop, which is always the same: ids are known per partition."""
    return LaneName("bank", f"p{crc32(id.encode()) % PARTITIONS['bank']}")


async def resume(client: RecordingClient, queue: str) -> None:
    """Resume a queue, and retry until it succeeds. The checks find a queue that was lost."""
    path = f"/api/v1/queues/{client.named(queue)}/resume"
    for _ in range(TRIES_MAX):
        answer = await client.ask(client.any_broker(), "POST", path, {}, expected=_FOUND)
        if answer.fate == "done" or answer.status == 404:
            break
        await asyncio.sleep(0.5)


async def configure(client: RecordingClient, run: str, cells: int = 1) -> None:
    """Create the queues of a run, in turn in each cell, and put the tokens into their first partitions."""
    for number, (queue, options) in enumerate(OPTIONS.items()):
        body: dict[str, Any] = {"queue": client.named(queue), "options": options}
        if cells > 1:
            beside = BESIDE.get(queue)
            body["options"] = {**options, "cell": f"same-as {client.named(beside)}" if beside else str(number % cells)}
        while (await client.ask(0, "POST", "/api/v1/configure", body)).fate != "done":
            await asyncio.sleep(0.5)
    for queue in RULES.deleting:  # the group is there before the first message, which it must get
        lost = -1
        while lost != client.lost_pops:
            lost = client.lost_pops
            await client.pop(0, queue, "any", wait=False)
    for number in range(TOKENS):
        id = f"token{number}-{run}-0"
        await client.push(0, lane_of_hop(id), [id])
