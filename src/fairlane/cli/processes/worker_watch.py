"""`fairlane worker --watch`: live rates and lag of a worker."""

from __future__ import annotations

import asyncio
import time

from fairlane.cli.toolkit.screen import Screen
from fairlane.cli.toolkit.table import lines
from fairlane.client import Client
from fairlane.errors import FairlaneError
from fairlane.model.names import QUEUE_MODE
from fairlane.runtime.consumer import Consumer
from fairlane.worker import Worker

_SECONDS = 0.5
_LAG_SECONDS = 2.0
_TITLES = ("queue", "group", "in hand", "handled", "per second", "failed", "waiting")


async def watch(worker: Worker, servers: list[str]) -> None:
    """Draw the screen until cancelled."""
    handled: dict[Consumer, tuple[float, int]] = {}
    lags: dict[tuple[str, str], int | None] = {}
    lag_at = 0.0
    async with Client(servers, attempts=1) as client:
        with Screen(above=True) as screen:
            while True:
                await asyncio.sleep(_SECONDS)
                now = time.monotonic()
                if now >= lag_at:
                    lags, lag_at = await _lags(client), now + _LAG_SECONDS
                rates = {}
                for consumer in worker.consumers:
                    at, before = handled.get(consumer, (now, consumer.handled))
                    rates[consumer] = (consumer.handled - before) / max(now - at, 0.001)
                    handled[consumer] = now, consumer.handled
                screen.draw([*lines(_TITLES, _rows(worker, rates, lags), width=screen.columns), ""])


def _rows(
    worker: Worker, rates: dict[Consumer, float], lags: dict[tuple[str, str], int | None]
) -> list[tuple[object, ...]]:
    return [
        (
            consumer.queue,
            "" if consumer.group == QUEUE_MODE else consumer.group,
            f"{consumer.in_hand} of {consumer.slots}",
            consumer.handled,
            round(rates.get(consumer, 0.0)),
            consumer.failed,
            lags.get((consumer.queue, consumer.group)),
        )
        for consumer in worker.consumers
    ]


async def _lags(client: Client) -> dict[tuple[str, str], int | None]:
    try:
        return {(group.queue, group.name): group.total_lag for group in await client.groups.all()}
    except FairlaneError:
        return {}
