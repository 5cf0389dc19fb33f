"""The pops of a consumer. Each may carry the last acks of claims that are handled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairlane.errors import FairlaneError
from fairlane.runtime.backoff import backoff
from fairlane.runtime.claim import Report
from fairlane.runtime.settler import merged

if TYPE_CHECKING:
    from fairlane.runtime.consumer import Consumer

POLL_SECONDS = 30.0
ANSWER_SECONDS = 0.5
"""A pop without an answer after this long is waiting for messages."""


class Polls:
    def __init__(self, consumer: Consumer, idle_seconds: float | None, **options: Any) -> None:
        self._consumer = consumer
        self._idle_seconds = idle_seconds
        self._options = options
        self._stopping = asyncio.Event()
        self._in_flight: dict[asyncio.Task[Any], float] = {}
        """The time when each pop was sent."""
        self.failures = 0
        """Failed pops since the last that succeeded."""

    def __bool__(self) -> bool:
        return bool(self._in_flight)

    def stop(self) -> None:
        """End the pops that wait for messages."""
        self._stopping.set()
        loop = asyncio.get_running_loop()
        for poll, began_at in self._in_flight.items():
            # A pop that was just sent may be answered now. Cancelled, its messages would wait until the lease expires.
            loop.call_later(max(0.0, began_at + ANSWER_SECONDS - loop.time()), poll.cancel)

    async def pop(self, messages: int, lanes: int, *, long: bool) -> Any:
        """Pop in a separate task, which `stop` can cancel. Returns None if it failed or was cancelled."""
        consumer, settler = self._consumer, self._consumer.settler
        reports = settler.take_last()
        idle = POLL_SECONDS if self._idle_seconds is None else self._idle_seconds
        handled = {report.claim for report in reports}
        wait = min(POLL_SECONDS, idle if consumer.claims <= handled else max(idle, 1.0)) if long else 0.0
        asked = {"group": consumer.group, "batch": messages, "partitions": lanes, "wait": wait, **self._options}
        poll = asyncio.ensure_future(self._send(reports, asked))
        self._in_flight[poll] = asyncio.get_running_loop().time()
        try:
            await asyncio.wait([poll])
        finally:
            poll.cancel()
            del self._in_flight[poll]
            settler.put_back(reports)
        if poll.cancelled():
            return None
        try:
            batch = poll.result()
        except FairlaneError as error:
            if not long:
                return None  # the waiting poll gets the same error
            if not (error.retryable or consumer.handling.retries_all_pops):
                raise
            await self._back_off(error)
            return None
        if self.failures:
            consumer.handling.log.info("pops from queue %(queue)r work again", consumer.names)
        self.failures = 0
        return batch

    async def _send(self, reports: list[Report], asked: dict[str, Any]) -> Sequence[Any] | None:
        """Pop, with the acks of `reports` if there are any. None if that failed unexpectedly."""
        consumer = self._consumer
        if not reports:
            popped: Sequence[Any] = await consumer.verbs.pop(consumer.queue, **asked)
            return popped
        items, claims = merged(reports)
        try:
            answer = await consumer.verbs.ack_and_pop(items, consumer.queue, **asked)
        except FairlaneError:
            raise
        except Exception as error:  # a bug here must not keep the acks
            text = "unexpected error in a pop with acks of queue %(queue)r, acking them alone"
            consumer.handling.log.error(text, consumer.names, exc_info=error)
            return None
        consumer.settler.settle(reports, answer.outcomes, claims)
        if answer.error is not None:
            raise answer.error
        batch: Sequence[Any] = answer.batch
        return batch

    async def _back_off(self, error: FairlaneError) -> None:
        """Wait before the next pop after an error, or until stopped."""
        consumer = self._consumer
        self.failures += 1
        delay = backoff(self.failures, base=0.2, most=10.0)
        text = "cannot pop from queue %(queue)r, retrying in %(seconds).1f s: %(error)s"
        consumer.handling.log.warning(text, {**consumer.names, "seconds": delay, "error": error})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay)
