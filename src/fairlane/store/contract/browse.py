"""The contract of browsing: looking at messages without taking them. What `contract.store` says of all verbs holds.

No read counts message by message: pages come from segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from fairlane.model.ids import PartitionId
from fairlane.store.contract.values import ActivePartition, Found, MessageHead, Upto

DeadLettered = Literal["dead", "finished", "gone"]


class Browse(Protocol):
    """Browsing: messages of queues one by one, and taking them out of the order of the log.

    A message taken out stays where it is until its segment goes; positions keep their meaning. Pops step over it.
    """

    async def active(
        self,
        queue_ids: Sequence[int],
        *,
        name: str | None = None,
        since: int = 0,
        before: tuple[int, PartitionId] | None = None,
        limit: int = 100,
    ) -> list[ActivePartition]:
        """Partitions that hold messages and were written to at or after `since`, latest write first, then greatest
        id first; `before` is (last_at, id) of the last one seen; `name`: only those called so."""
        ...

    async def back(self, where: Sequence[Upto], *, since: int = 0, limit: int = 100) -> list[MessageHead]:
        """Of each partition the newest messages below its bound, up to `limit` of each, created at or after `since`;
        deleted ones are left out. Partitions in the order given, each newest first."""
        ...

    async def traced(self, queue_ids: Sequence[int], trace_id: str, *, limit: int = 10_000) -> list[Found]:
        """Messages of these queues that carry a traceId, in no order; also deleted ones whose rows are still there."""
        ...

    async def with_id(self, queue_ids: Sequence[int], transaction_id: str) -> list[Found]:
        """Where messages of these queues with this transactionId may be, in no order: by the ids that are remembered,
        and by the time inside a UUIDv7. Whoever reads them compares."""
        ...

    async def delete(self, partition: PartitionId, position: int) -> bool:
        """Take a message out for every group, with its dead letters and results; False if it is not there (any more).

        From then on no pop delivers it. Who holds it in a live lease may still ack it. It is not part of the
        queue's depth, and its transactionId may be pushed anew."""
        ...

    async def dead_letter(self, partition: PartitionId, group_id: int, position: int, error: str) -> DeadLettered:
        """Dead-letter a message for one group at once, also behind others that it has not read yet.

        `finished` and nothing done if its cursor has passed the message, or it was given up on before; `gone` if
        there is no such message or group. A seek of the group brings the message back, like any dead letter's; until
        the cursor has passed it, it keeps its place in the queue's depth."""
        ...

    async def clear(self, queue_id: int, *, partition: PartitionId | None = None) -> int:
        """Take out all messages there are, of the queue or of one partition, and end all leases; how many.

        Their ids, and those of messages that went before, may be pushed anew.

        Every group stands at the head afterwards. Dead letters stay. Rows go in bounded steps. NotFound if the
        queue is gone."""
        ...
