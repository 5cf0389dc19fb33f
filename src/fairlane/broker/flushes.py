"""Flushes of the batchers into the store: by the journal route, where there is a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.journal_acks import AckAnswers
from fairlane.broker.journal_route import JournalRoute
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import PushRequest
from fairlane.model.outcome import AckOutcome, PushOutcome
from fairlane.runtime.batcher import LateAnswer

REST, REST_SECONDS_MAX = 4.0, 0.5
"""To enqueue a push and apply it later costs several times what executing it does. So after pushes were enqueued none
are for so many times as long: else a load that lasts would leave little time for executing any."""


class Flushes:
    def __init__(
        self,
        pusher: Pusher,
        acker: Acker,
        enqueue_acks: Callable[[list[AckRequest]], Coroutine[Any, Any, AckAnswers]],
        stored: Callable[[], None],
        route: JournalRoute | None,
    ) -> None:
        """`enqueue_acks` makes acks operations; `stored` is called after each flush of pushes."""
        self._pusher = pusher
        self._acker = acker
        self._enqueue_acks = enqueue_acks
        self._stored = stored
        self._route = route
        self._rest_until = 0.0

    async def push(self, requests: list[PushRequest]) -> Sequence[list[PushOutcome] | Exception | LateAnswer]:
        outcomes: Sequence[list[PushOutcome] | Exception | LateAnswer]
        if self._route is not None:
            outcomes = await self._route.push(requests, self._pusher.run)
        else:
            outcomes = await self._pusher.flush(requests)
            for late in outcomes:
                if isinstance(late, asyncio.Future):
                    late.add_done_callback(lambda _: self._stored())
        self._stored()
        return outcomes

    async def enqueue(self, requests: list[PushRequest]) -> list[list[PushOutcome] | Exception]:
        await asyncio.sleep(self._rest_until - monotonic())
        began = monotonic()
        try:
            if self._route is not None:
                return await self._route.push(requests, self._pusher.run_enqueue)
            return await self._pusher.enqueue(requests)
        finally:
            ended = monotonic()
            self._rest_until = ended + min(REST_SECONDS_MAX, REST * (ended - began))

    async def ack(self, requests: list[AckRequest]) -> Sequence[Sequence[AckOutcome] | Exception | LateAnswer]:
        if self._route is not None:
            return await self._route.ack(requests, self._acker.flush)
        return await self._acker.flush_or_wait(requests)

    async def enqueue_acks(self, requests: list[AckRequest]) -> AckAnswers:
        if self._route is not None:
            return await self._route.ack(requests, self._enqueue_acks)
        return await self._enqueue_acks(requests)
