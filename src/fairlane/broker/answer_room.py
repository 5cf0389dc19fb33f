"""The answer room of pops: their share of the budget that the process has for its clients.

A pop takes as many messages as fit, and waits its turn while others that may be large are under way. How large the
messages of a queue are is learned from what was popped, so that pops of small ones, as nearly all are, need no turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fairlane.errors import Overloaded
from fairlane.model.limits import MESSAGE_BYTES_MAX, POP_BYTES_MAX
from fairlane.runtime.memory import Budget
from fairlane.store.contract.values import Claim, Lane

_LIGHT_BYTES = 1024 * 1024
_UNCERTAIN = 4
"""How many times larger messages may be than was seen."""
_QUEUES_MAX = 10_000


class AnswerRoom:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._claimed = 0
        self._freed: asyncio.Future[None] | None = None
        self._sizes: dict[int, int] = {}
        """Bytes that are read for one message, by queue: more than it has, where a part of a segment is read."""

    async def claim(self, queue_id: int, claims: Sequence[Claim]) -> tuple[int, int]:
        """What is kept free for these claims until `release`, and how many bytes each may take. Overloaded if there is
        no room, and none will be soon."""
        each = self._sizes.get(queue_id)
        wanted = POP_BYTES_MAX * len(claims)
        if each is not None:
            wanted = sum([min(POP_BYTES_MAX, _UNCERTAIN * each * claim.batch) for claim in claims])
        budget = self._budget
        if wanted <= _LIGHT_BYTES and budget.used < budget.bytes_max * 3 // 4:  # mostly: there is room
            return 0, MESSAGE_BYTES_MAX
        least = min(wanted, MESSAGE_BYTES_MAX, self._budget.bytes_max // 4)
        while self._claimed and self._budget.room - self._claimed < least:
            if self._freed is None:
                self._freed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._freed)
        room = self._budget.room - self._claimed
        if room < least:
            raise Overloaded(
                "the broker holds as many bytes of requests and answers as it may; nothing was taken", retry_after=1.0
            )
        claimed = min(wanted, room)
        self._claimed += claimed
        return claimed, max(1, min(POP_BYTES_MAX, claimed // len(claims)))

    def release(self, claimed: int) -> None:
        """Once those who claimed it have made their answers, which count by themselves."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._release, claimed)

    def _release(self, claimed: int) -> None:
        self._claimed -= claimed
        if self._freed is not None:
            self._freed.set_result(None)
            self._freed = None

    def learn(self, queue_id: int, taken: Sequence[Sequence[Lane]]) -> None:
        """From the first lane of each claim."""
        lanes = [lanes[0] for lanes in taken if lanes]
        if not lanes:
            return
        size = sum([len(segment.body) for lane in lanes for segment in lane.segments])
        each = size // sum([lane.upto - lane.first for lane in lanes]) + 1
        known = self._sizes.get(queue_id, 0)
        if len(self._sizes) > _QUEUES_MAX:
            self._sizes.clear()
        self._sizes[queue_id] = each if each > known else (7 * known + each) // 8
