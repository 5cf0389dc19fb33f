"""The history of a run: every push, delivery and ack with its time and its fate, and the log at the end.

A client writes one line before it sends a request and one after the answer. If it is killed in between, the request
stays in the history with an unknown fate.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

Fate = Literal["done", "deferred", "refused", "unknown"]
"""`deferred` is a 202. `unknown` is a timeout, a lost connection or a 503: the request may have been applied."""
NEVER = 1e300
"""End of a request without an answer."""


class LaneName(NamedTuple):
    """A partition of a queue."""

    queue: str
    partition: str


class PushRecord(msgspec.Struct, frozen=True, array_like=True):
    """A message that a producer pushed, from its first attempt to its last answer."""

    lane: LaneName
    id: str
    began: float
    ended: float = NEVER
    fate: Fate = "unknown"
    broker: int = 0
    in_journal: bool = False
    """A 202 that waits in the journal of `broker`, which orders only the pushes through that broker."""
    roamed: bool = False
    """Another broker got an attempt too, and may have stored it before the entries in the journal of `broker`."""


class DeliveryRecord(msgspec.Struct, frozen=True, array_like=True):
    """A message in the answer to a pop."""

    lane: LaneName
    group: str
    id: str
    position: int
    lease: str
    began: float
    ended: float
    intact: bool = True
    """The payload has the bytes that were pushed."""


class AckRecord(msgspec.Struct, frozen=True, array_like=True):
    """An attempt to settle a delivered message."""

    lane: LaneName
    group: str
    id: str
    lease: str
    status: str
    """`completed`, `failed` or `retry`; `released` if the request releases the whole lease; `cancelled` without one."""
    began: float
    ended: float = NEVER
    fate: Fate = "unknown"
    pushed: str | None = None
    """The id of the message that the same transaction pushed."""


class ReplayRecord(msgspec.Struct, frozen=True, array_like=True):
    """An attempt to replay the dead letter of a message."""

    id: str
    fate: Fate = "unknown"


class FanInRecord(msgspec.Struct, frozen=True, array_like=True):
    """A fan-in that a client created: its id, which its callback gets, and its parts."""

    id: str
    group: str
    """Group whose acks end the parts."""
    parts: list[tuple[LaneName, str]]
    began: float
    ended: float = NEVER
    fate: Fate = "unknown"


class UniqueRecord(msgspec.Struct, frozen=True, array_like=True):
    """A push with a unique key. It is refused while another message with the key waits or runs."""

    key: str
    id: str
    began: float
    ended: float = NEVER
    fate: Fate = "unknown"
    holder: str = ""
    """The id of the message that excluded this one, as the answer names it."""


class LetterRecord(NamedTuple):
    """A dead letter, by the transaction id of its message."""

    lane: LaneName
    id: str
    attempts: int = 0
    """Failed attempts before it was given up. 0 if that is not known."""


class HistoryLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a history file. The last line of an operation holds its result."""

    op: int
    phase: Literal["invoke", "ok", "fail", "unknown"]
    at: float
    pushes: list[PushRecord] = []
    deliveries: list[DeliveryRecord] = []
    acks: list[AckRecord] = []
    replays: list[ReplayRecord] = []
    fan_ins: list[FanInRecord] = []
    uniques: list[UniqueRecord] = []
    odd: str = ""
    """An answer that no fault explains, such as a 500."""


class HistoryWriter:
    """Appends lines to a history file. Each is written at once, so that a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._next = 0

    def new_op(self) -> int:
        self._next += 1
        return self._next

    def write(self, line: HistoryLine) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._file)


class FaultSpan(NamedTuple):
    """One injected fault, from its beginning until it was mended."""

    name: str
    began: float
    ended: float


class Conserved(NamedTuple):
    """The counts of one lane, from the history and the log, from SQL, and from the API."""

    lane: LaneName
    group: str
    stored: dict[str, int]
    unfinished: dict[str, int]
    dead: dict[str, int]


@dataclass
class RecordedHistory:
    """Everything that the clients of a run observed."""

    pushes: list[PushRecord] = field(default_factory=list)
    deliveries: list[DeliveryRecord] = field(default_factory=list)
    acks: list[AckRecord] = field(default_factory=list)
    dead: list[LetterRecord] = field(default_factory=list)
    replays: dict[str, Fate] = field(default_factory=dict)
    """The fate of the replay of each dead message, by the id of the message."""
    fan_ins: list[FanInRecord] = field(default_factory=list)
    uniques: list[UniqueRecord] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)
    """The dead message that a message in the log is a replay of, by the id of the copy."""
    log: dict[LaneName, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The ids in each partition at the end, in order."""
    corrupt: list[str] = field(default_factory=list)
    """Messages of the log whose payload differs from what was pushed."""
    in_clear: list[str] = field(default_factory=list)
    """Encrypted queues whose payloads SQL shows in clear."""
    conserved: list[Conserved] = field(default_factory=list)
    odd_answers: list[str] = field(default_factory=list)
    """Answers that no fault explains, such as a 500."""
    stuck: list[str] = field(default_factory=list)
    """Messages and acks that were still not delivered or applied after all faults had ended."""
    faults: list[FaultSpan] = field(default_factory=list)
    mended_at: float = NEVER
    """Time when all faults had ended."""
    drained_at: float = NEVER
    """Time when every message was finished."""

    def add(self, line: HistoryLine) -> None:
        """Add the result of one operation."""
        self.pushes += line.pushes
        self.deliveries += line.deliveries
        self.acks += line.acks
        self.fan_ins += line.fan_ins
        self.uniques += line.uniques
        for one in line.replays:
            # A later attempt finds the letter replayed, so its fate does not replace a known one.
            known = self.replays.get(one.id)
            if one.fate == "done" or known is None or one.fate == "unknown":
                self.replays[one.id] = "done" if "done" in (known, one.fate) else one.fate
        if line.odd:
            self.odd_answers.append(line.odd)


def read_history(files: list[Path]) -> RecordedHistory:
    """Return the history that clients wrote to these files."""
    history = RecordedHistory()
    for file in files:
        results = {line.op: line for line in _lines(file)}
        for line in results.values():
            history.add(line)
    return history


def _lines(file: Path) -> Iterator[HistoryLine]:
    decoder = msgspec.json.Decoder(HistoryLine)
    for text in file.read_bytes().split(b"\n")[:-1]:  # a killed client may have left half a line at the end
        yield decoder.decode(text)
