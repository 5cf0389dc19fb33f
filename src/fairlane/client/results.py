"""Results: the status of a message for a group, and what its handler returned."""

from __future__ import annotations

from fairlane.client.pops import affinity
from fairlane.client.resource import ClientResource, decode
from fairlane.client.transport import path_of
from fairlane.model.ids import PartitionId
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE, check_name, name_or_none
from fairlane.wire.browse import MessageResult


class Results(ClientResource):
    async def get(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str | PartitionId = DEFAULT_PARTITION,
        group: str | None = None,
        wait: float = 0.0,
    ) -> MessageResult:
        """Return the status of a message for a group, and the result that its ack carried.

        Waits up to `wait` seconds for the group to finish the message. The default group is the one that runs commands,
        then the queue's default group, then the only group. Raises NotFound.
        """
        check_name("queue", queue)
        check_name("transaction_id", transaction_id)
        query: dict[str, str | int] = {}
        if isinstance(partition, PartitionId):
            path = path_of("messages", str(partition), transaction_id, "result")
        else:
            path = path_of("queues", queue, "results", transaction_id)
            query["partition"] = check_name("partition", partition)
        if name_or_none("group", group) is not None:
            query["consumerGroup"] = group or ""
        if wait:
            query |= {"wait": "true", "timeout": round(wait * 1000)}
        key = affinity(queue, group or QUEUE_MODE)  # the server that receives its acks, and wakes the waiting request
        return decode(await self._transport.request("GET", path, key=key, query=query, wait=wait), MessageResult)
