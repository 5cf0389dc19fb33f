"""Limits: how many messages a group may get now."""

from __future__ import annotations

from fairlane.model.queue import Queue
from fairlane.model.rate import DeliveryRate
from fairlane.store.contract.limits import Allowance
from fairlane.store.families.query import DatabaseTransaction, Family


class GroupLimits(Family):
    async def state(self, group_id: int, *, key: str = "") -> Allowance | None:
        """Return what the limits of its queue allow a group now. None if the group does not exist.

        Pops of one group are counted one after another, on all brokers, so that no limit is exceeded: `max_running`
        counts messages under live leases, and `rate` all deliveries in any period of its length. Each group has its own
        counts. With `key` only its messages are counted, under `max_running_per_key` and `rate_per_key`. A lane of a
        key at its rate sleeps until the rate allows more.
        """
        rows = await self._runner.reads.limit_state(group_id, key)
        return Allowance(*rows[0]) if rows else None


async def wake_keys(transaction: DatabaseTransaction, queue: Queue) -> None:
    """Wake lanes and retries that sleep because of the queue's previous `rate_per_key`.

    They sleep exactly until a delivery of their key is out of the period. The caller locked the cursors.
    """
    seconds = DeliveryRate.parse("rate_per_key", queue.options.rate_per_key).seconds
    for step in ("limits.wake_lanes", "limits.wake_retries"):
        await transaction.run(step, queue_id=queue.id, seconds=seconds, unordered=queue.options.ordering == "unordered")
