"""The watch screen of a worker."""

from __future__ import annotations

import asyncio
import time

from rich.live import Live
from rich.table import Table

from fairlane.client import Client
from fairlane.errors import FairlaneError
from fairlane.model.names import QUEUE_MODE
from fairlane.runtime.consumer import Consumer
from fairlane.worker import Worker

_SECONDS = 0.5
_LAG_SECONDS = 2.0


async def watch(worker: Worker, servers: list[str]) -> None:
    """Until it is cancelled."""
    handled: dict[Consumer, tuple[float, int]] = {}
    lags: dict[tuple[str, str], int | None] = {}
    lag_at = 0.0
    async with Client(servers, attempts=1) as client:
        with Live(table(worker, {}, {}), auto_refresh=False) as live:
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
                live.update(table(worker, rates, lags), refresh=True)


def table(worker: Worker, rates: dict[Consumer, float], lags: dict[tuple[str, str], int | None]) -> Table:
    shown = Table(title=f"worker of {worker.app.name}", expand=True)
    for name in ("queue", "group"):
        shown.add_column(name)
    for name in ("in hand", "handled", "per second", "failed", "waiting"):
        shown.add_column(name, justify="right")
    for consumer in worker.consumers:
        key = consumer.queue, consumer.group
        lag = lags.get(key)
        shown.add_row(
            key[0],
            "" if key[1] == QUEUE_MODE else key[1],
            f"{consumer.in_hand} of {consumer.room}",
            str(consumer.handled),
            f"{rates.get(consumer, 0.0):.0f}",
            str(consumer.failed),
            "" if lag is None else str(lag),
        )
    return shown


async def _lags(client: Client) -> dict[tuple[str, str], int | None]:
    try:
        return {(group.queue, group.name): group.total_lag for group in await client.groups.list()}
    except FairlaneError:
        return {}
