"""Clients that record what they ask of a broker and what it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

import msgspec

from fairlane.verify.history import (
    AckRecord,
    DeliveryRecord,
    Fate,
    HistoryLine,
    HistoryWriter,
    LaneName,
    PushRecord,
)
from fairlane.verify.requester import EXPECTED, HttpAnswer, Requester
from fairlane.verify.rules import RULES

RETRIES_MAX = 5
PADDING_BYTES_MAX = 600
_POP: dict[str, Any] = {"batch": 8, "wait": True, "timeout": 1000, "subscriptionMode": "all"}
"""The usual query of a pop."""


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
    """A message that a consumer holds."""

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
        self.writer = writer
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
            self.writer.write(HistoryLine(self.writer.new_op(), "ok", answer.ended, odd=odd))
        return answer

    async def push(self, broker: int, lane: LaneName, ids: Sequence[str], **options: Any) -> bool:
        """Push messages to one partition, again until all have a fate or the retries are used up.

        Returns True if all were accepted.
        """
        op, began, first, roamed = self.writer.new_op(), time.monotonic(), broker, False
        # All that a killed client leaves of a push: any of its attempts may have gone to another broker.
        records = {id: PushRecord(lane, id, began, broker=broker, roamed=True) for id in ids}
        self.writer.write(HistoryLine(op, "invoke", began, pushes=list(records.values())))
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
                fate, in_journal = fate_of_push(answer, elements, index)
                if fate == "refused" and attempt:
                    fate = records[id].fate  # an earlier attempt may have been stored
                records[id] = PushRecord(lane, id, began, answer.ended, fate, broker, in_journal)
        found = [msgspec.structs.replace(one, roamed=roamed) for one in records.values()]
        self.writer.write(HistoryLine(op, phase_of([one.fate for one in found]), time.monotonic(), pushes=found))
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
        path = f"/api/v1/pop/queue/{self.named(where)}"
        answer = await self.ask(broker, "GET", path, consumerGroup=group, **_POP | options)
        messages, records = self._popped(answer, where, group)
        if records:
            self.writer.write(HistoryLine(self.writer.new_op(), "ok", answer.ended, deliveries=records))
        return messages

    def _popped(
        self, answer: HttpAnswer, where: str, group: str
    ) -> tuple[list[DeliveredMessage], list[DeliveryRecord]]:
        """Return the messages of an answer and their records, or nothing if the answer is lost."""
        if answer.status not in (200, 202):
            if answer.status != 204:
                self.lost_pops += 1
                self.last_lost = f"{answer.status} {answer.content[:300]!r}"
            return [], []
        queue = where.partition("/")[0]
        found = msgspec.json.decode(answer.content, type=RawPopAnswer).messages
        messages = [_held(LaneName(queue, one.partition), group, one) for one in found]
        self.delivered += len(messages)
        return messages, [
            DeliveryRecord(one.lane, group, one.id, one.position, one.lease, answer.began, answer.ended, one.intact)
            for one in messages
        ]

    async def ack(self, broker: int, messages: Sequence[DeliveredMessage], statuses: Sequence[str]) -> None:
        """Settle messages of one group in one request."""
        body = {"consumerGroup": messages[0].group, "acknowledgments": _acknowledgments(messages, statuses)}
        await self.settle(broker, "/api/v1/ack/batch", body, acks_of(messages, statuses))

    async def ack_and_pop(
        self, broker: int, messages: Sequence[DeliveredMessage], statuses: Sequence[str], where: str, **options: Any
    ) -> list[DeliveredMessage]:
        """Settle messages and pop the next ones of their queue in one request. Returns [] if the answer is lost."""
        op, records, group = self.writer.new_op(), acks_of(messages, statuses), messages[0].group
        self.writer.write(HistoryLine(op, "invoke", records[0].began, acks=records))
        path = f"/api/v1/ack-and-pop/queue/{self.named(where)}"
        body = {"acknowledgments": _acknowledgments(messages, statuses)}
        answer = await self.ask(broker, "POST", path, body, consumerGroup=group, **_POP | options)
        acks = _settled(answer, records, answer.body["acknowledgments"] if answer.status in (200, 202) else None)
        popped, deliveries = self._popped(answer, where, group)
        phase = phase_of([one.fate for one in acks])
        self.writer.write(HistoryLine(op, phase, answer.ended, acks=acks, deliveries=deliveries))
        return popped

    async def release(self, broker: int, message: DeliveredMessage) -> None:
        """Release the lease of a message."""
        path = f"/api/v1/lease/{message.lease}/release"
        await self.settle(broker, path, {}, acks_of([message], ["released"]), expected=EXPECTED | {404})

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
        records = acks_of([message], ["completed"], pushed=id)
        body = {"operations": [ack, push]}
        await self.settle(broker, "/api/v1/transaction", body, records, expected=EXPECTED | {409})

    async def settle(
        self, broker: int, path: str, body: Any, records: list[AckRecord], *, expected: frozenset[int] = EXPECTED
    ) -> None:
        op = self.writer.new_op()
        self.writer.write(HistoryLine(op, "invoke", records[0].began, acks=records))
        answer = await self.ask(broker, "POST", path, body, expected=expected)
        found = _settled(answer, records, answer.body)
        self.writer.write(HistoryLine(op, phase_of([one.fate for one in found]), answer.ended, acks=found))


def _acknowledgments(messages: Sequence[DeliveredMessage], statuses: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"transactionId": one.id, "partitionId": one.partition_id, "leaseId": one.lease, "status": status}
        for one, status in zip(messages, statuses, strict=True)
    ]


def _settled(answer: HttpAnswer, records: Sequence[AckRecord], elements: Any) -> list[AckRecord]:
    """Return the records of acks with their times and fates."""
    return [
        msgspec.structs.replace(one, began=answer.began, ended=answer.ended, fate=fate_of_ack(answer, elements, index))
        for index, one in enumerate(records)
    ]


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


def _is_callback(data: bytes, id: str) -> bool:
    """Return True for the payload of the callback of a fan-in whose parts all completed."""
    found = msgspec.json.decode(data)
    return bool(found["fanIn"] == id and found["data"] == payload_of(id) and not found["failed"])


def acks_of(
    messages: Sequence[DeliveredMessage], statuses: Sequence[str], pushed: str | None = None
) -> list[AckRecord]:
    now = time.monotonic()
    return [
        AckRecord(one.lane, one.group, one.id, one.lease, status, now, pushed=pushed)
        for one, status in zip(messages, statuses, strict=True)
    ]


def phase_of(fates: Sequence[Fate]) -> Any:
    if any(fate in ("done", "deferred") for fate in fates):
        return "ok"
    return "unknown" if "unknown" in fates else "fail"


def fate_of_push(answer: HttpAnswer, elements: Any, index: int) -> tuple[Fate, bool]:
    """Return the fate of one item, and whether it waits in the journal of the broker that answered."""
    if not isinstance(elements, list):
        return answer.fate, False
    element = elements[index]
    if element["status"] == "buffered":
        return "deferred", element.get("durability") == "journal"
    if element["status"] in ("queued", "duplicate", "scheduled"):
        return "done", False
    return ("refused" if answer.status == 429 else "unknown"), False


def fate_of_ack(answer: HttpAnswer, elements: Any, index: int) -> Fate:
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
