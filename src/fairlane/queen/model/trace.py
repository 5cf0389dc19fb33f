"""Traces: notes of consumers about their work on a message."""

from __future__ import annotations

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.limits import TRACE_BYTES_MAX, TRACE_NAMES_MAX
from fairlane.model.names import QUEUE_MODE, check_name


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One note. `data` is JSON from the consumer. `names` find traces of several messages."""

    id: str
    partition: PartitionId
    transaction_id: str
    data: bytes
    group: str = QUEUE_MODE
    event_type: str = "info"
    names: list[str] = msgspec.field(default_factory=list)
    created_at: int = 0
    """Time by the store's clock."""

    def check(self) -> Trace:
        check_name("transactionId", self.transaction_id)
        check_name("consumerGroup", self.group)
        check_name("eventType", self.event_type)
        if len(self.names) > TRACE_NAMES_MAX:
            raise InvalidRequest(f"a trace may have {TRACE_NAMES_MAX} names, not {len(self.names)}")
        for name in self.names:
            check_name("a trace's name", name)
        if len(self.data) > TRACE_BYTES_MAX:
            raise InvalidRequest(f"a trace's data may have {TRACE_BYTES_MAX} bytes, not {len(self.data)}")
        return self
