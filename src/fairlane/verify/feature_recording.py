"""Clients that record fan-ins, cancellations, replays, unique pushes, and messages enqueued in the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fairlane.verify.history import (
    FanInRecord,
    Fate,
    HistoryLine,
    LaneName,
    PushRecord,
    ReplayRecord,
    UniqueRecord,
)
from fairlane.verify.recording import RETRIES_MAX, DeliveredMessage, RecordingClient, acks_of, fate_of_ack, phase_of
from fairlane.verify.requester import EXPECTED, HttpAnswer

NO_BROKER = -1
"""Number of the broker of messages that a program enqueued in the database."""


class FeatureRecordingClient(RecordingClient):
    """The verbs beside push, pop and ack."""

    async def cancel(self, broker: int, message: DeliveredMessage) -> None:
        """Cancel a message for its group."""
        body = {"partition": message.lane.partition.partition("!")[0], "consumerGroup": message.group}
        path = f"/api/v1/queues/{self.named(message.lane.queue)}/cancellations/{message.id}"
        records = [msgspec.structs.replace(one, lease="") for one in acks_of([message], ["cancelled"])]
        await self.settle(broker, path, body, records, expected=EXPECTED | {404, 409})

    async def fan_in(self, broker: int, id: str, parts: list[tuple[LaneName, str]], then: LaneName, group: str) -> None:
        """Create a fan-in. A repeat with the same ids changes nothing, so it is repeated until it is answered."""
        op, began = self.writer.new_op(), time.monotonic()
        pushes = [PushRecord(lane, part, began, broker=broker) for lane, part in parts]
        record = FanInRecord(id, group, parts, began)
        self.writer.write(HistoryLine(op, "invoke", began, pushes=pushes, fan_ins=[record]))
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
            fate = fate_of_ack(answer, answer.body, 0) if answer.status != 409 else "unknown"
            if fate in ("done", "refused"):
                fate = "unknown" if fate == "refused" and attempt else fate
                break
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
        ended = time.monotonic()
        pushes = [msgspec.structs.replace(one, ended=ended, fate=fate, roamed=True) for one in pushes]
        record = msgspec.structs.replace(record, ended=ended, fate=fate)
        self.writer.write(HistoryLine(op, phase_of([fate]), ended, pushes=pushes, fan_ins=[record]))

    async def push_unique(self, broker: int, lane: LaneName, id: str, key: str) -> None:
        """Push a message unless another one with the key waits or runs. Repeats it until the answer is known."""
        op, record = self.writer.new_op(), UniqueRecord(key, id, time.monotonic())
        push = PushRecord(lane, id, record.began, broker=broker, roamed=True)
        self.writer.write(HistoryLine(op, "invoke", record.began, pushes=[push], uniques=[record]))
        body = {"items": self.items(lane, [id], {"unique": "while_running", "uniqueKey": key})}
        fate: Fate = "unknown"
        holder = ""
        for attempt in range(RETRIES_MAX):
            answer = await self.ask(broker, "POST", "/api/v1/push", body, expected=EXPECTED | {409})
            fate, holder = _fate_of_unique(answer, id)
            if fate != "unknown":
                # An attempt without an answer may still be stored, once the other message is finished.
                fate = "unknown" if fate == "refused" and attempt else fate
                break
            broker = self.any_broker()
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
        ended = time.monotonic()
        push = msgspec.structs.replace(push, ended=ended, fate=fate)
        record = msgspec.structs.replace(record, ended=ended, fate=fate, holder=holder)
        self.writer.write(HistoryLine(op, phase_of([fate]), ended, pushes=[push], uniques=[record]))
        self.pushed += fate == "done"

    async def record_enqueue(self, lane: LaneName, ids: Sequence[str], run: Callable[[], Awaitable[bool]]) -> None:
        """Record a transaction that enqueues messages: True if it committed, False if not. An error leaves a doubt."""
        op, began = self.writer.new_op(), time.monotonic()
        records = [PushRecord(lane, id, began, broker=NO_BROKER) for id in ids]
        self.writer.write(HistoryLine(op, "invoke", began, pushes=records))
        fate = await _fate_of(run)
        ended = time.monotonic()
        records = [msgspec.structs.replace(one, ended=ended, fate=fate) for one in records]
        self.writer.write(HistoryLine(op, phase_of([fate]), ended, pushes=records))
        self.pushed += len(ids) if fate == "done" else 0

    async def record_complete(self, message: DeliveredMessage, run: Callable[[], Awaitable[bool]]) -> None:
        """Record an ack by a function of the database, as `record_enqueue` does."""
        op, [record] = self.writer.new_op(), acks_of([message], ["completed"])
        self.writer.write(HistoryLine(op, "invoke", record.began, acks=[record]))
        fate = await _fate_of(run)
        found = msgspec.structs.replace(record, ended=time.monotonic(), fate=fate)
        self.writer.write(HistoryLine(op, phase_of([fate]), found.ended, acks=[found]))

    async def replay(self, broker: int, queue: str, letter_id: str, id: str) -> Fate:
        """Replay the dead letter of the message `id`, and return the fate of that."""
        op = self.writer.new_op()
        self.writer.write(HistoryLine(op, "invoke", time.monotonic(), replays=[ReplayRecord(id)]))
        body = {"queue": self.named(queue), "ids": [letter_id]}
        answer = await self.ask(broker, "POST", "/api/v1/dlq/replay", body, expected=EXPECTED | {404})
        fate: Fate = "done" if answer.status == 200 and answer.body["replayed"] else "unknown"
        self.writer.write(HistoryLine(op, phase_of([fate]), answer.ended, replays=[ReplayRecord(id, fate)]))
        return fate


def _fate_of_unique(answer: HttpAnswer, id: str) -> tuple[Fate, str]:
    """Return the fate of a unique push, and the id of the message that excluded it."""
    if not isinstance(answer.body, list):
        return ("refused" if answer.fate == "refused" else "unknown"), ""
    [element] = answer.body
    if element["status"] not in ("queued", "duplicate"):
        return "unknown", ""
    stored = element["transaction_id"]
    return ("done", "") if stored == id else ("refused", stored)


async def _fate_of(run: Callable[[], Awaitable[bool]]) -> Fate:
    """Return the fate of a transaction of the database. After any error it may have been committed."""
    try:
        return "done" if await run() else "refused"
    except (Exception, asyncio.CancelledError):  # of the driver, which only the store imports
        return "unknown"
