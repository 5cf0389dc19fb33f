"""Wake repair: slowly scans all lanes, and wakes lanes that have messages but were not marked ready."""

from __future__ import annotations

import logging
import random
from time import monotonic

from fairlane.broker.push import Announcer
from fairlane.errors import FairlaneError
from fairlane.model.ids import PartitionId
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store

ROUND_SECONDS = 5.0
"""Pause between two walks over all lanes."""
STEP_SECONDS = 0.5
STEP_PARTITIONS = 10_000
SHARE = 50
"""Pause after a step, as a multiple of its duration: the walk uses at most a fiftieth of a connection."""

log = logging.getLogger(__name__)


class WakeRepair(Service):
    def __init__(self, store: Store, announcer: Announcer) -> None:
        super().__init__("wake repair")
        self._store = store
        self._announcer = announcer

    async def _run(self) -> None:
        after: PartitionId | None = None
        pause = ROUND_SECONDS
        while True:
            await self._rest(pause * random.uniform(0.75, 1.25))  # noqa: S311  # not all brokers at once
            if self._stopping:
                return
            began = monotonic()
            try:
                after = await self._step(after)
            except FairlaneError as error:
                log.warning("wake repair: cannot look for lanes to wake: %(error)s", {"error": error})
                after = None
            pause = max(ROUND_SECONDS if after is None else STEP_SECONDS, SHARE * (monotonic() - began))

    async def _step(self, after: PartitionId | None) -> PartitionId | None:
        repaired = await self._store.groups.repair_wakes(after, limit=STEP_PARTITIONS)
        for queue_id, lanes in repaired.lanes.items():
            log.warning(
                "wake repair: woke %(lanes)d lanes of queue %(queue_id)d that had messages and were not ready",
                {"lanes": lanes, "queue_id": queue_id},
            )
            self._announcer.announce(queue_id, lanes)
        return repaired.after
