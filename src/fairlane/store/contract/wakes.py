"""Values of the repair of lost wake-ups between the broker and a store."""

from __future__ import annotations

import msgspec

from fairlane.model.ids import PartitionId


class RepairedWakes(msgspec.Struct):
    """One step of the walk over all lanes.

    `lanes` counts woken lanes by queue. `after` is where the next step continues, None at the end.
    """

    lanes: dict[int, int]
    after: PartitionId | None
