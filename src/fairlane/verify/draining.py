"""The end of a run: wait until everything is finished, then read the log, the dead letters and the counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from fairlane.errors import Unavailable
from fairlane.verify.history import Conserved, LaneName, LetterRecord, RecordedHistory
from fairlane.verify.recording import DeliveredMessage, RecordingClient
from fairlane.verify.requester import EXPECTED, HttpAnswer
from fairlane.verify.rules import AUDIT, GROUPS, LIMITED, NO_LIMITS, OPTIONS, RULES
from fairlane.verify.sql_snapshot import SqlSnapshot, read_snapshot
from fairlane.verify.traffic import resume

STILL_SECONDS_MAX = 60.0
"""Longest time of the drain in which nothing more is delivered or applied. Far above the longest lease and backoff."""
DRAIN_SECONDS_MAX = 900.0
POLL_SECONDS = 1.0
TRIES_MAX = 20
_FOUND = EXPECTED | {404}


class Drain:
    """Waits for the end of a run's messages, and reads what is left, as the client of one broker after the other."""

    def __init__(self, client: RecordingClient, notify: Callable[[str], None]) -> None:
        self._client = client
        self._notify = notify

    async def finish(self) -> list[str]:
        """Wait until every message is finished. Returns what is left when nothing progresses."""
        for queue in OPTIONS:
            await resume(self._client, queue)
        ends_at = time.monotonic() + DRAIN_SECONDS_MAX
        give_up_at, before = time.monotonic() + STILL_SECONDS_MAX, list[str]()
        while waiting := await self._waiting():
            if waiting != before:
                give_up_at, before = min(ends_at, time.monotonic() + STILL_SECONDS_MAX), waiting
            elif time.monotonic() > give_up_at:
                return waiting
            self._notify(f"waiting for {len(waiting)}: {waiting[0]:.120}")
            await asyncio.sleep(POLL_SECONDS)
        return []

    async def _waiting(self) -> list[str]:
        """Return what is not yet delivered or applied."""
        waiting = []
        for broker in range(self._client.brokers):
            ready = await self._client.ask(broker, "GET", "/readyz")
            if ready.status != 200:
                waiting.append(f"broker {broker} is not ready")
            elif entries := ready.body["journal"]["entries"]:
                waiting.append(f"the journal of broker {broker} has {entries} entries")
        for queue in OPTIONS:
            held = await self._client.ask(0, "GET", f"/api/v1/scheduled/{self._client.named(queue)}")
            if held.status != 200 or held.body["messages"]:
                waiting.append(f"{queue}: scheduled messages wait")
            pending = await self._client.ask(
                0, "GET", "/api/v1/operations", queue=self._client.named(queue), status="pending"
            )
            if pending.status != 200 or pending.body["operations"]:
                waiting.append(f"{queue}: operations wait")
        staged = await self._client.ask(0, "GET", "/api/v1/staged")
        if staged.status != 200 or any(
            one["queue"].startswith(self._client.named("")) for one in staged.body["queues"]
        ):
            waiting.append("staged messages wait")
        for queue, group in [*GROUPS, ("auto", "once"), ("plain", "replay")]:
            depth = await self._depth(queue, group)
            if depth.status != 200 or depth.body["pending"]:
                left = depth.body["pending"] if depth.status == 200 else "an unknown number of"
                waiting.append(f"{queue}: {group} has {left} unfinished messages")
        return waiting

    async def _depth(self, queue: str, group: str) -> HttpAnswer:
        path = f"/api/v1/resources/queues/{self._client.named(queue)}/depth"
        return await self._client.ask(0, "GET", path, group=group, expected=_FOUND)

    async def read(self, history: RecordedHistory, urls: Sequence[str]) -> None:
        """Read the log, the dead letters and the counts into the history. Parts that cannot be read count as stuck."""
        try:
            await self._read(history, urls)
        except Unavailable as error:
            history.stuck.append(str(error))

    async def _read(self, history: RecordedHistory, urls: Sequence[str]) -> None:
        for queue in LIMITED:  # or else they would be read a few messages at a time
            body = {"queue": self._client.named(queue), "options": OPTIONS[queue] | NO_LIMITS}
            _needed(await self._client.ask(0, "POST", "/api/v1/configure", body))
        for queue in OPTIONS.keys() - RULES.deleting:
            await self._audit(history, queue)
        history.dead += await self._letters()
        snapshot = await read_snapshot(urls, self._client.named(""))
        history.corrupt += _differences(history, snapshot)
        history.in_clear = sorted(snapshot.in_clear & {RULES.encrypted})
        history.conserved = [
            await self._conserved(history, snapshot, queue, group, lane)
            for queue, group in GROUPS
            for lane in sorted(history.log)
            if lane.queue == queue
        ]

    async def _audit(self, history: RecordedHistory, queue: str) -> None:
        """Read every partition of a queue from its beginning, as a group that nobody else uses.

        An answer that is lost takes its messages with it, so the next group begins again.
        """
        for number in range(TRIES_MAX):
            lost_before, group = self._client.lost_pops, f"{AUDIT}{number or ''}"
            messages = await self._read_all(queue, group)
            if self._client.lost_pops == lost_before:
                break
            await asyncio.sleep(POLL_SECONDS)
        else:
            raise Unavailable(f"no pop of {queue} was answered while the results were read: {self._client.last_lost}")
        for one in messages:
            history.log[one.lane].append(one.id)
            if not one.intact:
                history.corrupt.append(f"{one.lane}: {one.id} is stored with another payload")
            if one.original != one.id:
                history.copies[one.id] = one.original

    async def _read_all(self, queue: str, group: str) -> list[DeliveredMessage]:
        found, lost_before = list[DeliveredMessage](), self._client.lost_pops
        while True:
            found += await self._client.pop(0, queue, group, autoAck=True, batch=1000, partitions=100)
            if self._client.lost_pops > lost_before or not _needed(await self._depth(queue, group)).body["pending"]:
                return found

    async def _letters(self) -> list[LetterRecord]:
        found: list[LetterRecord] = []
        while True:
            answer = await self._client.ask(
                0, "GET", "/api/v1/dlq", queue=self._client.named("poison"), limit=1000, offset=len(found)
            )
            letters = _needed(answer).body["messages"]
            if not letters:
                return found
            found += [
                LetterRecord(LaneName("poison", letter["partition"]), letter["transactionId"], letter["retryCount"])
                for letter in letters
            ]

    async def _conserved(
        self, history: RecordedHistory, snapshot: SqlSnapshot, queue: str, group: str, lane: LaneName
    ) -> Conserved:
        """Return the counts of one lane from each source."""
        depth = _needed(await self._depth(queue, group)).body
        api = {one["partition"]: one["pending"] for one in depth["partitions"]}
        dead = {letter.id for letter in history.dead if letter.lane == lane}
        finished = dead | {
            ack.id
            for ack in history.acks
            if ack.lane == lane
            and ack.group == group
            and ack.status in ("completed", "cancelled")
            and ack.fate != "refused"
        }
        log = history.log[lane]
        stored = {"log": len(log), "SQL": len(snapshot.messages[lane])}
        unfinished = {
            "history": sum(id not in finished for id in log),
            "SQL": snapshot.lags.get((lane, group), 0),
            "API": api.get(lane.partition, 0),
        }
        return Conserved(
            lane, group, stored, unfinished, {"API": len(dead), "SQL": snapshot.letters.get((lane, group), 0)}
        )

    async def delete_queues(self) -> list[str]:
        """Delete the queues of the run. Returns those that could not be deleted."""
        left = []
        for queue in (*OPTIONS, "scratch"):
            name = self._client.named(queue)
            for _ in range(TRIES_MAX):
                answer = await self._client.ask(0, "DELETE", f"/api/v1/resources/queues/{name}", expected=_FOUND)
                if answer.fate == "done":
                    break
                await asyncio.sleep(POLL_SECONDS)
            else:
                left.append(name)
        return left


def _needed(answer: HttpAnswer) -> HttpAnswer:
    """Return a successful answer. Raises Unavailable for any other, because the checks need it."""
    if answer.fate != "done":
        raise Unavailable(
            f"a healthy broker answered {answer.status} while the results were read: {answer.content[:200]!r}"
        )
    return answer


def _differences(history: RecordedHistory, snapshot: SqlSnapshot) -> list[str]:
    """Return the partitions in which SQL and the broker show different messages or orders."""
    return [
        f"{lane}: SQL shows other messages than the broker delivers, or another order"
        for lane in history.log.keys() | snapshot.messages.keys()
        if lane.queue in OPTIONS.keys() - RULES.deleting
        and history.log.get(lane, []) != snapshot.messages.get(lane, [])
    ]
