"""Clients that record what they ask of a broker and what it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

import msgspec

from fairlane.verify.history import (
    AckRecord,
    DeliveryRecord,
    FanInRecord,
    Fate,
    HistoryLine,
    HistoryWriter,
    LaneName,
    PushRecord,
    ReplayRecord,
)
from fairlane.verify.requester import EXPECTED, HttpAnswer, Requester
from fairlane.verify.rules import RULES

RETRIES_MAX = 5
PADDING_BYTES_MAX = 600
NO_BROKER = -1
"""Number of the broker of messages that a program enqueued in the database."""


class PoppedData(msgspec.Struct):
    """The part of a payload that names its message. A replay carries the id of the original."""

    id: str


class RawMessage(msgspec.Struct, rename="camel"):
    """A message as a pop returns it, with the bytes of its payload."""

    transaction_id: str
    partition: str
    partition_id: str
    position: int
    data: msgspec.Raw
    lease_id: str | None = None


class RawPopAnswer(msgspec.Struct):
    messages: list[RawMessage]


@dataclass(frozen=True)
class DeliveredMessage:
    """A message in the hands of a consumer."""

    lane: LaneName
    group: str
    id: str
    original: str
    position: int
    partition_id: str
    lease: str
    intact: bool


def payload_of(id: str) -> dict[str, str]:
    """Return the payload of a message. It follows from the id, so that any client can check it."""
    number = crc32(id.encode())
    return {"id": id, "padding": f"{number:08x}" * (number % (PADDING_BYTES_MAX // 8))}


class RecordingClient:
    """The verbs of one client. Queue names get a prefix on the wire, and have none in the history."""

    def __init__(self, requester: Requester, writer: HistoryWriter, random: Random, prefix: str) -> None:
        self.random = random
        self._requester = requester
        self._writer = writer
        self._prefix = prefix
        self.pushed = self.delivered = 0
        self.lost_pops = 0
        """Pops without an answer, or with an error."""
        self.last_lost = ""
        """The answer to the last of them. Its status is 0 if there was none."""

    @property
    def brokers(self) -> int:
        return self._requester.count

    def any_broker(self) -> int:
        return self.random.randrange(self._requester.count)

    def named(self, queue: str) -> str:
        """Return the name of a queue on the wire."""
        return self._prefix + queue

    async def ask(
        self,
        broker: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        expected: frozenset[int] = EXPECTED,
        **query: Any,
    ) -> HttpAnswer:
        """Send one request. An answer that no fault explains goes into the history."""
        answer = await self._requester.send(broker, method, path, body, **query)
        if answer.status and answer.status not in expected:
            odd = f"{method} {path} was answered {answer.status}: {answer.content[:300]!r}"
            self._writer.write(HistoryLine(self._writer.new_op(), "ok", answer.ended, odd=odd))
        return answer

    async def push(self, broker: int, lane: LaneName, ids: Sequence[str], **options: Any) -> bool:
        """Push messages to one partition, again until all have a fate or the retries are used up.

        Returns True if all were accepted.
        """
        op, began, first, roamed = self._writer.new_op(), time.monotonic(), broker, False
        # All that a killed client leaves of a push: any of its attempts may have gone to another broker.
        records = {id: PushRecord(lane, id, began, broker=broker, roamed=True) for id in ids}
        self._writer.write(HistoryLine(op, "invoke", began, pushes=list(records.values())))
        for attempt in range(RETRIES_MAX):
            waiting = [id for id, one in records.items() if one.fate not in ("done", "deferred")]
            if not waiting:
                break
            if attempt:
                await asyncio.sleep(self.random.uniform(0.05, 0.5) * attempt)
                if self.random.random() < 0.2:
                    broker = self.any_broker()
            roamed = roamed or broker != first
            answer = await self.ask(broker, "POST", "/api/v1/push", {"items": self.items(lane, waiting, options)})
            elements = answer.body
            for index, id in enumerate(waiting):
                fate, in_journal = _fate_of_push(answer, elements, index)
                if fate == "refused" and attempt:
                    fate = records[id].fate  # an earlier attempt may have been stored
                records[id] = PushRecord(lane, id, began, answer.ended, fate, broker, in_journal)
        found = [msgspec.structs.replace(one, roamed=roamed) for one in records.values()]
        self._writer.write(HistoryLine(op, _phase([one.fate for one in found]), time.monotonic(), pushes=found))
        accepted = sum(one.fate in ("done", "deferred") for one in found)
        self.pushed += accepted
        return accepted == len(found)

    def items(self, lane: LaneName, ids: Sequence[str], options: dict[str, Any]) -> list[dict[str, Any]]:
        more = dict(options)
        if more.pop("any_priority", False):
            more["priority"] = self.random.randrange(10)
        where = {"queue": self.named(lane.queue), "partition": lane.partition}
        return [where | {"transactionId": id, "payload": payload_of(id)} | more for id in ids]

    async def pop(self, broker: int, where: str, group: str, **options: Any) -> list[DeliveredMessage]:
        """Pop messages of a queue, or of `queue/partition/name`, and record them. Returns [] if the answer is lost."""
        query: dict[str, Any] = {"batch": 8, "wait": True, "timeout": 1000, "subscriptionMode": "all"} | options
        path = f"/api/v1/pop/queue/{self.named(where)}"
        answer = await self.ask(broker, "GET", path, consumerGroup=group, **query)
        if answer.status != 200:
            if answer.status != 204:
                self.lost_pops += 1
                self.last_lost = f"{answer.status} {answer.content[:300]!r}"
            return []
        queue = where.partition("/")[0]
        found = msgspec.json.decode(answer.content, type=RawPopAnswer).messages
        messages = [_held(LaneName(queue, one.partition), group, one) for one in found]
        records = [
            DeliveryRecord(one.lane, group, one.id, one.position, one.lease, answer.began, answer.ended, one.intact)
            for one in messages
        ]
        if records:
            self._writer.write(HistoryLine(self._writer.new_op(), "ok", answer.ended, deliveries=records))
            self.delivered += len(records)
        return messages

    async def ack(self, broker: int, messages: Sequence[DeliveredMessage], statuses: Sequence[str]) -> None:
        """Settle messages of one group in one request."""
        acknowledgments = [
            {"transactionId": one.id, "partitionId": one.partition_id, "leaseId": one.lease, "status": status}
            for one, status in zip(messages, statuses, strict=True)
        ]
        body = {"consumerGroup": messages[0].group, "acknowledgments": acknowledgments}
        await self._settle(broker, "/api/v1/ack/batch", body, _acks(messages, statuses))

    async def release(self, broker: int, message: DeliveredMessage) -> None:
        """Release the lease of a message."""
        path = f"/api/v1/lease/{message.lease}/release"
        await self._settle(broker, path, {}, _acks([message], ["released"]), expected=EXPECTED | {404})

    async def move(self, broker: int, message: DeliveredMessage, to: LaneName, id: str) -> None:
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
        records = _acks([message], ["completed"], pushed=id)
        body = {"operations": [ack, push]}
        await self._settle(broker, "/api/v1/transaction", body, records, expected=EXPECTED | {409})

    async def _settle(
        self, broker: int, path: str, body: Any, records: list[AckRecord], *, expected: frozenset[int] = EXPECTED
    ) -> None:
        op = self._writer.new_op()
        self._writer.write(HistoryLine(op, "invoke", records[0].began, acks=records))
        answer = await self.ask(broker, "POST", path, body, expected=expected)
        elements = answer.body
        found = [
            msgspec.structs.replace(
                one, began=answer.began, ended=answer.ended, fate=_fate_of_ack(answer, elements, index)
            )
            for index, one in enumerate(records)
        ]
        self._writer.write(HistoryLine(op, _phase([one.fate for one in found]), answer.ended, acks=found))

    async def cancel(self, broker: int, message: DeliveredMessage) -> None:
        """Cancel a message for its group."""
        body = {"partition": message.lane.partition.partition("!")[0], "consumerGroup": message.group}
        path = f"/api/v1/queues/{self.named(message.lane.queue)}/cancellations/{message.id}"
        records = [msgspec.structs.replace(one, lease="") for one in _acks([message], ["cancelled"])]
        await self._settle(broker, path, body, records, expected=EXPECTED | {404, 409})

    async def fan_in(self, broker: int, id: str, parts: list[tuple[LaneName, str]], then: LaneName, group: str) -> None:
        """Create a fan-in. A repeat with the same ids changes nothing, so it is repeated until it is answered."""
        op, began = self._writer.new_op(), time.monotonic()
        pushes = [PushRecord(lane, part, began, broker=broker) for lane, part in parts]
        record = FanInRecord(id, group, parts, began)
        self._writer.write(HistoryLine(op, "invoke", began, pushes=pushes, fan_ins=[record]))
        step = {
            "type": "fan_in",
            "id": id,
            "consumerGroup": group,
            "items": [item for lane, part in parts for item in self.items(lane, [part], {})],
            "then": self.items(then, [id], {})[0],
        }
        fate: Fate = "unknown"
        for attempt in range(RETRIES_MAX):
            answer = await self.ask(
                broker, "POST", "/api/v1/transaction", {"operations": [step]}, expected=EXPECTED | {409}
            )
            fate = _fate_of_ack(answer, answer.body, 0) if answer.status != 409 else "unknown"
            if fate in ("done", "refused"):
                fate = "unknown" if fate == "refused" and attempt else fate
                break
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
        ended = time.monotonic()
        pushes = [msgspec.structs.replace(one, ended=ended, fate=fate, roamed=True) for one in pushes]
        record = msgspec.structs.replace(record, ended=ended, fate=fate)
        self._writer.write(HistoryLine(op, _phase([fate]), ended, pushes=pushes, fan_ins=[record]))

    async def record_enqueue(self, lane: LaneName, ids: Sequence[str], run: Callable[[], Awaitable[bool]]) -> None:
        """Record a transaction that enqueues messages: True if it committed, False if not. An error leaves a doubt."""
        op, began = self._writer.new_op(), time.monotonic()
        records = [PushRecord(lane, id, began, broker=NO_BROKER) for id in ids]
        self._writer.write(HistoryLine(op, "invoke", began, pushes=records))
        fate = await _fate_of(run)
        ended = time.monotonic()
        records = [msgspec.structs.replace(one, ended=ended, fate=fate) for one in records]
        self._writer.write(HistoryLine(op, _phase([fate]), ended, pushes=records))
        self.pushed += len(ids) if fate == "done" else 0

    async def record_complete(self, message: DeliveredMessage, run: Callable[[], Awaitable[bool]]) -> None:
        """Record an ack by a function of the database, as `record_enqueue` does."""
        op, [record] = self._writer.new_op(), _acks([message], ["completed"])
        self._writer.write(HistoryLine(op, "invoke", record.began, acks=[record]))
        fate = await _fate_of(run)
        found = msgspec.structs.replace(record, ended=time.monotonic(), fate=fate)
        self._writer.write(HistoryLine(op, _phase([fate]), found.ended, acks=[found]))

    async def replay(self, broker: int, queue: str, letter_id: str, id: str) -> Fate:
        """Replay the dead letter of the message `id`, and return the fate of that."""
        op = self._writer.new_op()
        self._writer.write(HistoryLine(op, "invoke", time.monotonic(), replays=[ReplayRecord(id)]))
        body = {"queue": self.named(queue), "ids": [letter_id]}
        answer = await self.ask(broker, "POST", "/api/v1/dlq/replay", body, expected=EXPECTED | {404})
        fate: Fate = "done" if answer.status == 200 and answer.body["replayed"] else "unknown"
        self._writer.write(HistoryLine(op, _phase([fate]), answer.ended, replays=[ReplayRecord(id, fate)]))
        return fate


def _held(lane: LaneName, group: str, found: RawMessage) -> DeliveredMessage:
    data = bytes(found.data)
    if lane.queue == RULES.fanned:
        original, intact = found.transaction_id, _is_callback(data, found.transaction_id)
    else:
        try:
            original = msgspec.json.decode(data, type=PoppedData).id
        except msgspec.DecodeError:
            original = ""
        intact = data == msgspec.json.encode(payload_of(original))
    return DeliveredMessage(
        lane, group, found.transaction_id, original, found.position, found.partition_id, found.lease_id or "", intact
    )


async def _fate_of(run: Callable[[], Awaitable[bool]]) -> Fate:
    """Return the fate of a transaction of the database. After any error it may have been committed."""
    try:
        return "done" if await run() else "refused"
    except (Exception, asyncio.CancelledError):  # of the driver, which only the store imports
        return "unknown"


def _is_callback(data: bytes, id: str) -> bool:
    """Return True for the payload of the callback of a fan-in whose parts all completed."""
    found = msgspec.json.decode(data)
    return bool(found["fanIn"] == id and found["data"] == payload_of(id) and not found["failed"])


def _acks(messages: Sequence[DeliveredMessage], statuses: Sequence[str], pushed: str | None = None) -> list[AckRecord]:
    now = time.monotonic()
    return [
        AckRecord(one.lane, one.group, one.id, one.lease, status, now, pushed=pushed)
        for one, status in zip(messages, statuses, strict=True)
    ]


def _phase(fates: Sequence[Fate]) -> Any:
    if any(fate in ("done", "deferred") for fate in fates):
        return "ok"
    return "unknown" if "unknown" in fates else "fail"


def _fate_of_push(answer: HttpAnswer, elements: Any, index: int) -> tuple[Fate, bool]:
    """Return the fate of one item, and whether it waits in the journal of the broker that answered."""
    if not isinstance(elements, list):
        return answer.fate, False
    element = elements[index]
    if element["status"] == "buffered":
        return "deferred", element.get("durability") == "journal"
    if element["status"] in ("queued", "duplicate", "scheduled"):
        return "done", False
    return ("refused" if answer.status == 429 else "unknown"), False


def _fate_of_ack(answer: HttpAnswer, elements: Any, index: int) -> Fate:
    if answer.status == 409 or (
        answer.status == 200 and isinstance(elements, dict) and elements.get("success") is False
    ):
        return "refused"
    if not isinstance(elements, list):
        return answer.fate
    element = elements[index]
    if element.get("status") == "buffered":
        return "deferred"
    if not element["success"]:
        return "refused"
    return "unknown" if element.get("noop") else "done"
