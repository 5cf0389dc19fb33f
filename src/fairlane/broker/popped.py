"""The answer of a pop: the lanes it took, and their bytes."""

from __future__ import annotations

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.model.lease import LeaseId
from fairlane.store.contract.values import Lane


class Taken:
    """One lane of a pop's answer. Its bytes were checked; they are cut into messages when those are looked at."""

    __slots__ = ("_fragments", "created_at", "lane")

    def __init__(self, lane: Lane) -> None:
        """StoreCorrupt if bytes rotted or are missing."""
        self.lane = lane
        self.created_at: list[tuple[int, int]] = []
        """(number of messages, their created_at), segment by segment."""
        self._fragments: list[bytes] | None = None
        position, upto = lane.first, lane.upto
        for segment in lane.segments:
            segment.check()
            end = segment.first + len(segment.ends)
            if end > upto:
                end = upto
            if segment.first > position or end <= position:
                break
            self.created_at.append((end - position, segment.created_at))
            position = end
        if position != upto:
            raise StoreCorrupt(f"positions {lane.first} to {upto - 1} are not all there")

    @property
    def positions(self) -> range:
        return range(self.lane.first, self.lane.upto)

    @property
    def fragments(self) -> list[bytes]:
        """The stored form of each message."""
        if self._fragments is None:
            lane = self.lane
            self._fragments = [each for segment in lane.segments for each in segment.cut(lane.first, lane.upto)]
        return self._fragments


class Popped(msgspec.Struct):
    queue: str
    group: str
    lease: LeaseId | None
    """None when nothing was taken, or it needs no ack."""
    lanes: list[Taken]
    conflation: bool = False
    """What the group was begun with, not what this pop asked for."""
    ordered: bool = False
    """The messages of a lane come in order, so that an ack of one finishes those before it."""
    lease_seconds: int = 0
    """How long the lease is: what the pop asked for, or else the queue's setting. A renewal should ask for as much."""
