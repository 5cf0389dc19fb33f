"""Streams: queries that keep state next to the log, and the cycles that advance both."""

from __future__ import annotations

from uuid import UUID

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, STATE_BYTES_MAX, STATE_KEY_CHARS_MAX
from fairlane.model.names import check_name, name_or_none

NOT_IDLE = "rolled back: a consumer of the stream holds the partition, and works on this state"
NOT_THERE = "rolled back: a key of the state that was to be deleted is gone: another cycle was faster"


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A named computation over a queue.

    `config_hash` identifies the computation: state of another hash is useless to it.
    """

    id: UUID
    name: str
    source_queue: str
    sink_queue: str | None
    config_hash: str

    def check(self) -> StreamQuery:
        check_name("name", self.name)
        check_name("source_queue", self.source_queue)
        check_name("config_hash", self.config_hash)
        name_or_none("sink_queue", self.sink_queue)
        return self


class Registered(msgspec.Struct, frozen=True):
    """The stored query. `fresh` is True if it is new, `reset` if its state was dropped."""

    query: StreamQuery
    fresh: bool = False
    reset: bool = False


class StateOp(msgspec.Struct, frozen=True):
    """An operation that sets a key, or deletes it with the value None.

    `window_end` is the number of that name inside the value.
    """

    key: str
    value: bytes | None
    window_end: float | None = None


class StateFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of state rows. A field that is not set matches any row."""

    keys: list[str] | None = None
    prefix: str = ""
    ripe_until: float | None = None
    """Largest `window_end` of the rows."""
    after: str = ""
    """Key after which a page begins."""
    idle_group: str = ""
    """Group whose consumer hides the rows: while it holds the partition, it works on them."""


class StateChange(msgspec.Struct, frozen=True):
    """A change of the state of one query in one partition. Of several operations on one key the last one counts."""

    query_id: UUID
    partition: PartitionId
    ops: list[StateOp]
    idle_group: str = ""
    """Group of a cycle without an ack.

    The cycle is refused while a consumer of this group holds the partition, or if a key that it deletes is gone,
    because it read outdated state.
    """

    @property
    def is_flush(self) -> bool:
        """Return True for a flush of idle windows: it only deletes rows, without an ack, and may be repeated later."""
        return bool(self.idle_group and self.ops) and all(op.value is None for op in self.ops)

    @property
    def deleted(self) -> list[str]:
        return [op.key for op in {op.key: op for op in self.ops}.values() if op.value is None]

    def check(self) -> StateChange:
        if len(self.ops) > BATCH_ITEMS_MAX:
            raise InvalidRequest(f"a cycle may have {BATCH_ITEMS_MAX} state_ops, not {len(self.ops)}")
        for index, op in enumerate(self.ops):
            check_name(f"state_ops[{index}].key", op.key, chars_max=STATE_KEY_CHARS_MAX)
            if op.value is not None and len(op.value) > STATE_BYTES_MAX:
                raise InvalidRequest(f"state_ops[{index}].value has {len(op.value)} bytes; {STATE_BYTES_MAX} at most")
        return self
