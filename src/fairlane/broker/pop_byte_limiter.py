"""The limit on bytes that pops in flight may read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fairlane.errors import Overloaded
from fairlane.model.limits import MESSAGE_BYTES_MAX, POP_BYTES_MAX
from fairlane.runtime.memory import ByteBudget
from fairlane.store.contract.values import ClaimedLane, PopClaim

_LIGHT_BYTES = 1024 * 1024
_UNCERTAIN = 4
"""Safety factor over the message size seen so far."""
_QUEUES_MAX = 10_000


class PopByteLimiter:
    """The limit on bytes that pops in flight may read, a share of the byte budget of the process.

    A pop takes as many messages as fit, and waits while other pops that may be large are in flight. The size of a
    queue's messages is learned from earlier pops, so that pops of small messages never wait.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._claimed = 0
        self._freed: asyncio.Future[None] | None = None
        self._sizes: dict[int, int] = {}
        """Bytes read for one message, by queue. More than its size if a part of a segment is read."""

    async def claim(self, queue_id: int, claims: Sequence[PopClaim]) -> tuple[int, int]:
        """Reserve bytes for these claims until `release`. Returns the reservation and the byte limit of each claim.

        Raises Overloaded if the budget is spent and no pop is about to free any.
        """
        each = self._sizes.get(queue_id)
        wanted = POP_BYTES_MAX * len(claims)
        if each is not None:
            wanted = sum([min(POP_BYTES_MAX, _UNCERTAIN * each * claim.batch) for claim in claims])
        budget = self._budget
        # The common case: the budget is large enough.
        if wanted <= _LIGHT_BYTES and budget.used < budget.bytes_max * 3 // 4:
            return 0, MESSAGE_BYTES_MAX
        least = min(wanted, MESSAGE_BYTES_MAX, self._budget.bytes_max // 4)
        while self._claimed and self._budget.answer_bytes_free - self._claimed < least:
            if self._freed is None:
                self._freed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._freed)
        room = self._budget.answer_bytes_free - self._claimed
        if room < least:
            raise Overloaded(
                "the broker holds all the bytes of requests and answers that it may; nothing was popped",
                retry_after=1.0,
            )
        claimed = min(wanted, room)
        self._claimed += claimed
        return claimed, max(1, min(POP_BYTES_MAX, claimed // len(claims)))

    def release(self, claimed: int) -> None:
        """Free a reservation after the callers have built their answers, which count against the budget themselves."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._release, claimed)

    def _release(self, claimed: int) -> None:
        self._claimed -= claimed
        if self._freed is not None:
            self._freed.set_result(None)
            self._freed = None

    def learn(self, queue_id: int, claimed: Sequence[Sequence[ClaimedLane]]) -> None:
        """Learn the message size of a queue from the first lane of each claim."""
        lanes = [lanes[0] for lanes in claimed if lanes]
        if not lanes:
            return
        size = sum([len(segment.body) for lane in lanes for segment in lane.segments])
        each = size // sum([lane.upto - lane.first for lane in lanes]) + 1
        known = self._sizes.get(queue_id, 0)
        if len(self._sizes) > _QUEUES_MAX:
            self._sizes.clear()
        self._sizes[queue_id] = each if each > known else (7 * known + each) // 8
