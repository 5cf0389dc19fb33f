"""Results: what became of a message, and what its handler returned; waited for if asked to."""

from __future__ import annotations

from fairlane.client.part import Part, decode
from fairlane.client.pops import affinity
from fairlane.client.transport import path_of
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE, check_name, name_or_none
from fairlane.wire.browse import MessageResult


class Results(Part):
    async def get(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str = DEFAULT_PARTITION,
        group: str | None = None,
        wait: float = 0.0,
    ) -> MessageResult:
        """What became of a message for a group, and the result that its ack carried: as things are, or when the group
        is done with it, after `wait` seconds at the latest. Without a `group`: the one that carries out commands, the
        queue's own, or the only one there is. Raises NotFound."""
        query: dict[str, str | int] = {"partition": check_name("partition", partition)}
        if name_or_none("group", group) is not None:
            query["consumerGroup"] = group or ""
        if wait:
            query |= {"wait": "true", "timeout": round(wait * 1000)}
        path = path_of("queues", check_name("queue", queue), "results", check_name("transaction_id", transaction_id))
        key = affinity(queue, group or QUEUE_MODE)  # where its acks come in, which wake who waits
        return decode(await self._transport.ask("GET", path, key=key, query=query, wait=wait), MessageResult)
