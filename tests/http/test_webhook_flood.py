"""A flood of webhooks with redeliveries is processed once each, in order. `make faults-full` has it at full size."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.http.webhook_flood import SECRET, run_flood
from tests.http.wire import Wire


async def test_a_flood_of_webhooks_is_processed_once_each_and_in_order_by_incident(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOOD_SECRET", SECRET)
    flood = await run_flood(wire.base, uuid4().hex, count=500)
    flood.check()
    counted = wire.app.broker.process.telemetry.webhooks
    assert sum(count for (_, outcome), count in counted.items() if outcome == "queued") == 500
