"""The traffic of a history: producers, consumers that misbehave, and an administrator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zlib import crc32

from fairlane.model.ids import least_uuid7
from tests.history.clients import EXPECTED, Clients, Message
from tests.history.record import DeadLetter, Lane, Rules

LEASE_SECONDS = 3
OPTIONS = {
    "plain": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "bank": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
    "poison": {"leaseTime": LEASE_SECONDS, "retryLimit": 2},
    "auto": {"leaseTime": LEASE_SECONDS},
    "mixed": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000, "ordering": "unordered"},
    "later": {"leaseTime": LEASE_SECONDS, "retryLimit": 1000},
}
PARTITIONS = {"plain": 6, "bank": 4, "poison": 3, "auto": 3, "mixed": 2, "later": 2}
TOKENS = 12
GROUPS = [("plain", "billing"), ("plain", "search"), ("bank", "movers"), ("poison", "tasters"), ("mixed", "any")]
GROUPS += [("later", "any")]
RULES = Rules(
    ordered=frozenset({"plain", "bank", "poison", "auto"}),
    settled=frozenset(GROUPS),
    auto_acked=frozenset({("auto", "once"), *((queue, "audit") for queue in OPTIONS)}),
    tokens=frozenset({"bank"}),
    poisoned=frozenset({"poison"}),
)
STILL_SECONDS_MAX = 60.0
"""Longest time of the drain in which nothing more is delivered or applied. Far above the longest lease and backoff."""


class Workload:
    """The random traffic of a run. After `calm`, the clients only finish the messages that are left."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._random = clients.random
        self._calm = False
        self._stopped = False
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Configure the queues and start all clients."""
        for queue, options in OPTIONS.items():
            answer = await self._clients.ask(0, "POST", "/api/v1/configure", {"queue": queue, "options": options})
            assert answer.status in (200, 201), answer
        for number in range(TOKENS):
            await self._clients.push(0, self._hop(f"token{number}-0"), [f"token{number}-0"])
        for queue in ("plain", "poison", "auto", "mixed", "later"):
            for partition in range(PARTITIONS[queue]):
                for producer in range(2):
                    self._repeat(self._producer(Lane(queue, f"p{partition}"), producer), while_calm=False)
        for queue, group in GROUPS:
            for _ in range(2):
                self._repeat(self._consumer(queue, group))
        self._repeat(self._auto_consumer("auto", "once"))
        self._repeat(self._auto_consumer("plain", "replay"))
        self._repeat(self._administrator, while_calm=False)

    def _repeat(self, step: Callable[[], Awaitable[None]], *, while_calm: bool = True) -> None:
        async def forever() -> None:
            while not self._stopped and (while_calm or not self._calm):
                await step()

        self._running.append(asyncio.create_task(forever()))

    def _timed_id(self) -> str:
        least = least_uuid7(time.time_ns() // 1_000_000)
        return str(UUID(int=least.int | self._random.getrandbits(62)))

    def _hop(self, id: str) -> Lane:
        """Return the partition of a hop, which is always the same: ids are known per partition."""
        return Lane("bank", f"p{crc32(id.encode()) % PARTITIONS['bank']}")

    def _producer(self, lane: Lane, number: int) -> Callable[[], Awaitable[None]]:
        broker, made = number % len(self._clients.urls), 0

        async def step() -> None:
            nonlocal made
            ids = []
            for _ in range(self._random.randint(1, 5)):
                made += 1
                kind = "poison" if lane.queue == "poison" and self._random.random() < 0.2 else "message"
                # Brokers look up ids that carry their time in another way than ids that do not.
                timed = kind == "message" and number == 1
                ids.append(self._timed_id() if timed else f"{kind}-{lane.partition}-{number}-{made}")
            options: dict[str, Any] = {}
            if lane.queue == "later":
                # Not `delayMs`, which counts from the clock of the store, be it wrong.
                due = datetime.now(UTC) + timedelta(seconds=self._random.uniform(0.1, 3.0))
                options["deliverAt"] = due.isoformat()
            if lane.queue == "mixed":
                options["any_priority"] = True
            accepted = await self._clients.push(broker, lane, ids, **options)
            if accepted and self._random.random() < 0.05:
                # Known ids store nothing. Another broker does not know those in the journal of this one.
                body = {"items": self._clients.items(lane, ids, options)}
                await self._clients.ask(broker, "POST", "/api/v1/push", body)
            await asyncio.sleep(self._random.uniform(0.0, 1.0))

        return step

    def _consumer(self, queue: str, group: str) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            broker = self._clients.any_broker()
            batch = 200 if self._calm else self._random.randint(1, 12)
            where = queue
            if self._random.random() < 0.2 and queue in RULES.ordered:
                where = f"{queue}/partition/p{self._random.randrange(PARTITIONS[queue])}"
            partitions = {} if "/" in where else {"partitions": self._random.randint(1, 3)}
            messages = await self._clients.pop(broker, where, group, batch=batch, **partitions)
            if not messages:
                await asyncio.sleep(0.05)
                return
            if self._random.random() < 0.3:
                broker = self._clients.any_broker()
            if queue == "bank" and not self._calm:
                await self._move(broker, messages)
            elif queue == "poison":
                await self._taste(broker, messages)
            else:
                await self._settle(broker, messages)

        return step

    async def _settle(self, broker: int, messages: list[Message]) -> None:
        """Complete the messages, or misbehave."""
        deed = "complete" if self._calm else self._random.choice(["complete"] * 12 + DEEDS)
        if deed == "crash":
            return
        lease = messages[0].lease
        if deed == "slow":
            await asyncio.sleep(LEASE_SECONDS * self._random.uniform(0.8, 1.6))
        elif deed == "extend":
            await self._clients.ask(
                broker, "POST", f"/api/v1/lease/{lease}/extend", {"seconds": 5}, expected=EXPECTED | {404}
            )
        count = len(messages) if deed not in ("part", "fail") else self._random.randint(0, len(messages) - 1)
        # A partition that is acked in part is acked from its beginning.
        if count:
            await self._clients.ack(broker, messages[:count], ["completed"] * count)
        if deed == "fail":
            await self._clients.ack(broker, messages[count : count + 1], [self._random.choice(["failed", "retry"])])
        elif deed == "part" and self._random.random() < 0.5:
            await self._clients.ask(broker, "POST", f"/api/v1/lease/{lease}/release", {}, expected=EXPECTED | {404})

    async def _taste(self, broker: int, messages: list[Message]) -> None:
        """Complete the messages of each partition up to the first poisonous one, and fail that. A replay is eaten."""
        named, statuses, failed = [], [], set()
        for one in messages:
            if one.lane in failed:
                continue
            named.append(one)
            poisonous = one.id.startswith("poison") and one.data["id"] == one.id
            statuses.append("failed" if poisonous else "completed")
            if poisonous:
                failed.add(one.lane)
        await self._clients.ack(broker, named, statuses)

    async def _move(self, broker: int, messages: list[Message]) -> None:
        for one in messages:
            token, _, hop = one.id.rpartition("-")
            following = f"{token}-{int(hop) + 1}"
            await self._clients.move(broker, one, self._hop(following), following)
            if self._random.random() < 0.05:
                return

    def _auto_consumer(self, queue: str, group: str) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            await self._clients.pop(self._clients.any_broker(), queue, group, autoAck=True, batch=500)
            await asyncio.sleep(0.1)

        return step

    async def _administrator(self) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 1.5))
        ask, broker = self._clients.ask, self._clients.any_broker()
        queue = self._random.choice(list(OPTIONS))
        deed = self._random.randrange(5)
        if deed == 0:
            await ask(broker, "POST", f"/api/v1/queues/{queue}/pause", {})
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
            await self._resume(queue)
        elif deed == 1:
            where = "/api/v1/consumer-groups/replay/queues/plain/seek"
            await ask(broker, "POST", where, {"toBeginning": True}, expected=EXPECTED | {404})
        elif deed == 2:
            await self._replay_a_letter(broker)
        elif deed == 3:
            await ask(broker, "POST", "/api/v1/configure", {"queue": queue, "options": OPTIONS[queue]})
        else:
            for path in READS:
                await ask(broker, "GET", path.format(queue=queue), expected=EXPECTED | {404})

    async def _resume(self, queue: str) -> None:
        """Resume a queue, as often as it takes."""
        path = f"/api/v1/queues/{queue}/resume"
        while (await self._clients.ask(self._clients.any_broker(), "POST", path, {})).fate != "done":  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    async def _replay_a_letter(self, broker: int) -> None:
        found = await self._clients.ask(broker, "GET", "/api/v1/dlq", queue="poison", replayed="false", limit=5)
        replays = self._clients.history.replays
        for letter in found.body["messages"] if found.status == 200 else ():
            if not letter["transactionId"].startswith("poison") or replays.get(letter["transactionId"]) == "done":
                continue
            body = {"queue": "poison", "ids": [letter["id"]]}
            answer = await self._clients.ask(broker, "POST", "/api/v1/dlq/replay", body, expected=EXPECTED | {404})
            replayed = answer.status == 200 and bool(answer.body["replayed"])
            if replayed or letter["transactionId"] not in replays:
                replays[letter["transactionId"]] = "done" if replayed else "unknown"

    async def finish(self) -> None:
        """Stop producing, wait until all is delivered and applied, then read the whole log."""
        self._calm = True
        for queue in OPTIONS:
            await self._resume(queue)
        await self._drained()
        self._stopped = True
        await asyncio.gather(*self._running)
        await self._audit()

    async def _drained(self) -> None:
        give_up_at, before = time.monotonic() + STILL_SECONDS_MAX, list[str]()
        while waiting := await self._waiting():
            if waiting != before:
                give_up_at, before = time.monotonic() + STILL_SECONDS_MAX, waiting
            elif time.monotonic() > give_up_at:
                self._clients.history.stuck += waiting
                return
            print(f"waiting for {len(waiting)}, the first: {waiting[0]:.200}", flush=True)
            await asyncio.sleep(2.0)

    async def _waiting(self) -> list[str]:
        """Return what is not yet delivered or applied."""
        waiting = []
        for broker in range(len(self._clients.urls)):
            ready = await self._clients.ask(broker, "GET", "/readyz")
            if ready.status != 200 or ready.body["journal"]["entries"]:
                waiting.append(f"broker {broker} is not ready, or its journal is not empty: {ready.body}")
        stats = await self._clients.ask(0, "GET", "/api/v1/operations/stats")
        if stats.status != 200 or stats.body["lanes"]:
            waiting.append(f"operations wait: {stats.body}")
        for queue, group in [*GROUPS, ("auto", "once"), ("plain", "replay")]:
            depth = await self._clients.ask(
                0, "GET", f"/api/v1/resources/queues/{queue}/depth", group=group, expected=EXPECTED | {404}
            )
            if depth.status != 200 or depth.body["pending"]:
                waiting.append(f"{queue}: {group} has not got everything: {depth.body}")
            held = await self._clients.ask(0, "GET", f"/api/v1/scheduled/{queue}")
            if held.status != 200 or held.body["messages"]:
                waiting.append(f"{queue}: scheduled messages wait: {held.body}")
        return waiting

    async def _audit(self) -> None:
        """Read every partition from its beginning as a group that nobody else uses, and every dead letter."""
        history = self._clients.history
        for queue in OPTIONS:
            pending = 1
            while pending:
                for one in await self._clients.pop(0, queue, "audit", autoAck=True, batch=1000, partitions=100):
                    history.log[one.lane].append(one.id)
                    if one.data["id"] != one.id:
                        history.copies[one.id] = one.data["id"]
                depth = await self._clients.ask(0, "GET", f"/api/v1/resources/queues/{queue}/depth", group="audit")
                pending = depth.body["pending"]
        offset = 0
        while letters := (await self._letters(offset)):
            history.dead += letters
            offset += len(letters)

    async def _letters(self, offset: int) -> list[DeadLetter]:
        answer = await self._clients.ask(0, "GET", "/api/v1/dlq", queue="poison", limit=1000, offset=offset)
        assert answer.status == 200, answer
        return [
            DeadLetter(Lane("poison", letter["partition"]), letter["transactionId"])
            for letter in answer.body["messages"]
        ]


DEEDS = ["crash", "slow", "extend", "part", "part", "fail", "fail"]
READS = [
    "/api/v1/resources/queues/{queue}/depth",
    "/api/v1/explain/{queue}/p0",
    "/api/v1/messages?queue={queue}&limit=5",
    "/api/v1/resources/overview",
    "/api/v1/consumer-groups",
    "/api/v1/operations/stats",
    "/api/v1/findings",
    "/api/v1/leases",
    "/metrics",
]
