"""Clients that record what they ask of a broker and what it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp
import msgspec

from tests.broker_process import BrokerProcess
from tests.history.record import Ack, Delivery, Fate, History, Lane, Push

TIMEOUT_SECONDS = 8.0
RETRIES_MAX = 5
EXPECTED = {200, 201, 202, 204, 207, 429, 503, 504}
"""Statuses that a client of a healthy or failing store may get; others need a reason of their own."""


@dataclass(frozen=True)
class Answer:
    """An answer of a broker. `status` is 0 if there was none."""

    status: int
    body: Any
    began: float
    ended: float

    @property
    def fate(self) -> Fate:
        if self.status == 429:
            return "refused"
        if self.status == 202:
            return "deferred"
        return "done" if 200 <= self.status < 300 else "unknown"


@dataclass(frozen=True)
class Message:
    """A message in the hands of a consumer."""

    lane: Lane
    group: str
    id: str
    data: Any
    partition_id: str
    lease: str


class Clients:
    """Requests to the brokers of a run. A request that fails is never repeated here."""

    def __init__(self, brokers: Sequence[BrokerProcess], random: Random) -> None:
        self.history = History()
        self.random = random
        self.urls = [broker.url for broker in brokers]
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
            connector=aiohttp.TCPConnector(limit=0),
            headers={"content-type": "application/json"},
        )

    async def close(self) -> None:
        await self._session.close()

    def any_broker(self) -> int:
        return self.random.randrange(len(self.urls))

    async def ask(
        self, broker: int, method: str, path: str, body: Any = None, *, expected: set[int] = EXPECTED, **query: Any
    ) -> Answer:
        """Make one request. An answer that no fault explains goes into the history."""
        data = None if body is None else msgspec.json.encode(body)
        params = {name: str(value).lower() if value is True else str(value) for name, value in query.items()}
        began = time.monotonic()
        try:
            async with self._session.request(
                method, f"{self.urls[broker]}{path}", data=data, params=params
            ) as response:
                text, status = await response.read(), response.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return Answer(0, None, began, time.monotonic())
        answer = Answer(status, _decoded(text), began, time.monotonic())
        if status not in expected:
            self.history.odd_answers.append(f"{method} {path} was answered {status}: {text[:300]!r}")
        return answer

    async def push(self, broker: int, lane: Lane, ids: Sequence[str], **options: Any) -> bool:
        """Push messages to one partition, again until all have a fate or the retries are used up.

        Returns True if all were accepted.
        """
        fates: dict[str, tuple[Fate, float, int, bool]] = {}
        began, first = time.monotonic(), broker
        roamed = False
        for attempt in range(RETRIES_MAX):
            waiting = [id for id in ids if fates.get(id, ("unknown",))[0] not in ("done", "deferred")]
            if not waiting:
                break
            if attempt:
                await asyncio.sleep(self.random.uniform(0.05, 0.5) * attempt)
                if self.random.random() < 0.2:
                    broker = self.any_broker()
            roamed = roamed or broker != first
            answer = await self.ask(broker, "POST", "/api/v1/push", {"items": self.items(lane, waiting, options)})
            for index, id in enumerate(waiting):
                fate, in_journal = _fate_of_push(answer, index)
                if fate == "refused" and id in fates:
                    fate = fates[id][0]  # an earlier attempt may have been stored
                fates[id] = fate, answer.ended, broker, in_journal
        for id, (fate, ended, through, in_journal) in fates.items():
            self.history.pushes.append(Push(lane, id, began, ended, fate, through, in_journal, roamed))
        return all(fate in ("done", "deferred") for fate, *_ in fates.values())

    def items(self, lane: Lane, ids: Sequence[str], options: dict[str, Any]) -> list[dict[str, Any]]:
        more = dict(options)
        if more.pop("any_priority", False):
            more["priority"] = self.random.randrange(10)
        where = {"queue": lane.queue, "partition": lane.partition}
        return [where | {"transactionId": id, "payload": {"id": id}} | more for id in ids]

    async def pop(self, broker: int, where: str, group: str, **options: Any) -> list[Message]:
        """Pop messages of a queue, or of `queue/partition/name`, and record them. Returns [] if the answer is lost."""
        query: dict[str, Any] = {"batch": 8, "wait": True, "timeout": 1000, "subscriptionMode": "all"} | options
        answer = await self.ask(broker, "GET", f"/api/v1/pop/queue/{where}", consumerGroup=group, **query)
        if answer.status != 200:
            return []
        messages = []
        for found in answer.body["messages"]:
            lane = Lane(where.partition("/")[0], found["partition"])
            message = Message(
                lane, group, found["transactionId"], found["data"], found["partitionId"], found["leaseId"] or ""
            )
            messages.append(message)
            self.history.deliveries.append(
                Delivery(lane, group, message.id, found["position"], message.lease, answer.began, answer.ended)
            )
        return messages

    async def ack(self, broker: int, messages: Sequence[Message], statuses: Sequence[str]) -> None:
        """Settle messages of one group in one request."""
        acknowledgments = [
            {"transactionId": one.id, "partitionId": one.partition_id, "leaseId": one.lease, "status": status}
            for one, status in zip(messages, statuses, strict=True)
        ]
        body = {"consumerGroup": messages[0].group, "acknowledgments": acknowledgments}
        answer = await self.ask(broker, "POST", "/api/v1/ack/batch", body)
        for index, (one, status) in enumerate(zip(messages, statuses, strict=True)):
            fate = _fate_of_ack(answer, index)
            self.history.acks.append(
                Ack(one.lane, one.group, one.id, one.lease, status, answer.began, answer.ended, fate)
            )

    async def move(self, broker: int, message: Message, to: Lane, id: str) -> None:
        """Complete a message and push another one in a transaction."""
        ack = {
            "type": "ack",
            "transactionId": message.id,
            "partitionId": message.partition_id,
            "leaseId": message.lease,
            "consumerGroup": message.group,
            "status": "completed",
        }
        push = {"type": "push"} | self.items(to, [id], {})[0]
        answer = await self.ask(
            broker, "POST", "/api/v1/transaction", {"operations": [ack, push]}, expected=EXPECTED | {409}
        )
        fate = answer.fate
        if answer.status == 409 or (answer.status == 200 and not answer.body["success"]):
            fate = "refused"
        self.history.acks.append(
            Ack(
                message.lane,
                message.group,
                message.id,
                message.lease,
                "completed",
                answer.began,
                answer.ended,
                fate,
                pushed=id,
            )
        )


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None


def _fate_of_push(answer: Answer, index: int) -> tuple[Fate, bool]:
    """Return the fate of one item, and whether it waits in the journal of the broker that answered."""
    if not isinstance(answer.body, list):
        return answer.fate, False
    element = answer.body[index]
    if element["status"] == "buffered":
        return "deferred", element.get("durability") == "journal"
    if element["status"] in ("queued", "duplicate", "scheduled"):
        return "done", False
    return ("refused" if answer.status == 429 else "unknown"), False


def _fate_of_ack(answer: Answer, index: int) -> Fate:
    if not isinstance(answer.body, list):
        return answer.fate
    element = answer.body[index]
    if element.get("status") == "buffered":
        return "deferred"
    if not element["success"]:
        return "refused"
    return "unknown" if element.get("noop") else "done"
