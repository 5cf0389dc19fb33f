"""Failures as they are stored: of messages that will be delivered again, and of dead letters."""

from __future__ import annotations

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment
from fairlane.wire.dead_letters import FailedAttempt


class StoredFailure(msgspec.Struct, frozen=True):
    """The failed attempts of a message that a group has not given up."""

    attempts: int
    error: str
    failed_at: int
    history: list[FailedAttempt]
    """Failures before the last one, as in `StoredLetter`."""
    traceback: str | None

    @property
    def errors(self) -> list[FailedAttempt]:
        return [*self.history, FailedAttempt(at=Moment(self.failed_at), error=self.error, traceback=self.traceback)]


class StoredLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter in stored form. `message` is the complete stored message (see `model.segment`)."""

    partition: PartitionId
    group_id: int
    position: int
    queue: str
    partition_name: str
    group: str
    message: bytes
    message_created_at: int
    error: str
    attempts: int
    first_failed_at: int
    failed_at: int
    replayed_at: int | None
    replayed_as: str | None
    history: list[FailedAttempt] = []
    """Failures before the last one, oldest first. Only the latest nine are kept."""
    traceback: str | None = None
    """Traceback of the last failure."""

    @property
    def id(self) -> str:
        return f"{self.partition}-{self.group_id}-{self.position}"

    @property
    def errors(self) -> list[FailedAttempt]:
        """Return all these failures, with the last one."""
        return [*self.history, FailedAttempt(at=Moment(self.failed_at), error=self.error, traceback=self.traceback)]


class LockedLetter(StoredLetter, frozen=True, kw_only=True):
    """A stored letter whose message is not shown, with the reason."""

    locked: str
