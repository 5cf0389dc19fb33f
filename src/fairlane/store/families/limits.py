"""Limits: how many messages a group may get now."""

from __future__ import annotations

from fairlane.store.contract.limits import Allowance
from fairlane.store.families.query import Family


class GroupLimits(Family):
    async def state(self, group_id: int) -> Allowance | None:
        """Return what the limits of its queue allow a group now. None if the group does not exist.

        Pops of one group are counted one after another, on all brokers, so that no limit is exceeded: `max_running`
        counts messages under live leases, and `rate` all deliveries in any period of its length. Each group has its own
        counts.
        """
        rows = await self._runner.reads.limit_state(group_id)
        return Allowance(*rows[0]) if rows else None
