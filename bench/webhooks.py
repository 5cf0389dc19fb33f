"""A flood of webhooks, signed as GitHub signs them, and a consumer that waits for their messages.

The broker verifies each webhook, checks it against the type of its queue, reads its partition from its key and
deduplicates it by its delivery id.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.wrk import CONNECTIONS, WrkResult, run_wrk
from fairlane import Client
from tests.broker_process import FAIRLANE, BrokerProcess, broker_process

SPEC = """
app Bench {
  queue Incidents {
    message_type {
      payload: { incident: { id: string  title: string  urgency: string } }
      headers: map<string, string>
      source_ip: string
      received_at: time
    }
    key: payload.incident.id
  }
  webhook Alert {
    queue: Incidents
    verify: github { secret_env: "BENCH_HOOK_SECRET" }
    idempotency: header "X-GitHub-Delivery"
  }
}
"""
SECRET = "0123456789abcdef0123456789abcdef"
PARTITIONS = 100


def write_webhooks(file: Path) -> None:
    """Write the webhooks that wrk sends, one line each: the signature and the body."""
    with file.open("wb") as lines:
        for partition in range(PARTITIONS):
            incident = {"id": f"P{partition}", "title": "db is down", "urgency": "high", "notes": ["x" * 50] * 5}
            body = json.dumps({"incident": incident}).encode()
            signature = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
            lines.write(b"sha256=%b %b\n" % (signature.encode(), body))


@asynccontextmanager
async def webhook_broker(url: str, directory: Path) -> AsyncIterator[BrokerProcess]:
    """Run a broker process that accepts the webhooks."""
    spec = directory / "bench.fairlane"
    spec.write_text(SPEC)
    os.environ["BENCH_HOOK_SECRET"] = SECRET
    with broker_process(url) as broker:
        applying = [FAIRLANE, "spec", "apply", str(spec), "--server", broker.url]
        await asyncio.to_thread(subprocess.run, applying, check=True, capture_output=True)
        yield broker


async def flood(
    url: str, webhooks: Path, count: int, *, connections: int = CONNECTIONS
) -> tuple[WrkResult, list[float]]:
    """Send webhooks as fast as they are answered, and return the seconds from sending each to its delivery.

    Webhooks that are in flight when wrk has sent the last one may be cut off.
    """
    delivered: list[float] = []
    over = asyncio.Event()

    async def consumer() -> None:
        async with Client(url) as client:
            while True:
                batch = await client.pop(
                    "Incidents", group="watch", batch=1000, partitions=PARTITIONS, auto_ack=True, wait=0.5
                )
                now = time.time()
                delivered.extend(now - int(one.transaction_id.rpartition("-")[2]) / 1e6 for one in batch)
                if not batch and over.is_set():
                    return

    consuming = asyncio.create_task(consumer())
    try:
        arguments = ["hook", "/hook/Alert", str(webhooks), str(count)]
        result = await run_wrk(url, arguments, connections=connections, seconds=60)
    finally:
        over.set()
        await consuming
    if len(delivered) < count - 2 * connections:
        raise SystemExit(f"only {len(delivered)} of {count} webhooks were delivered")
    return result, delivered
