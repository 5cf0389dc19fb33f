"""Times until work goes on: `python -m tests.campaign.liveness --store sqlite --kills 30 --leases 100`.

A broker is killed with SIGKILL and started again at once, and pushes are repeated until one is answered. Consumers die
with a lease, while others wait for their lanes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from bench.usage import usage_of
from fairlane.verify.deployment import Deployment, VerifyPlan, start_deployment
from fairlane.verify.history import LaneName
from fairlane.verify.timeline import quantile

LEASE_SECONDS = 2
LANES = 10
"""Lanes whose consumers die at the same time."""
TRIES_MAX = 5000
PUSH_EVERY_SECONDS = 0.01


async def measure(given: argparse.Namespace, directory: Path) -> dict[str, object]:
    """Return the seconds of each recovery and of each takeover."""
    url = f"sqlite:///{directory}/queue.db" if given.store == "sqlite" else given.store
    async with start_deployment(VerifyPlan(store=url, seconds=0, seed=given.seed, brokers=1), directory) as deployment:
        options = {"leaseTime": LEASE_SECONDS, "retryLimit": 1000}
        await deployment.client.ask(
            0, "POST", "/api/v1/configure", {"queue": deployment.client.named("q"), "options": options}
        )
        takeovers = [one for number in range(given.leases // LANES) for one in await _take_over(deployment, number)]
        recoveries = [await _recover(deployment, number) for number in range(given.kills)]
        seconds, cpu = zip(*recoveries, strict=True) if recoveries else ((), ())
    late = [one for one in takeovers if one > 1.0]
    return {
        "violations": [f"a dead consumer's lane was taken over {one:.2f} s after its lease" for one in late],
        "recovery": _summary(seconds),
        "start": _summary(cpu),
        "takeover": _summary(takeovers),
    }


async def _recover(deployment: Deployment, number: int) -> tuple[float, float]:
    """Kill the broker, start it, and return the seconds until a push is answered, and the CPU seconds of the broker."""
    broker = deployment.targets.brokers[0]
    await asyncio.sleep(Random(number).uniform(0.1, 0.5))
    began = time.monotonic()
    await broker.kill()
    starting = asyncio.create_task(broker.start())
    for attempt in range(TRIES_MAX):
        body = {"items": deployment.client.items(LaneName("q", "kills"), [f"kill-{number}-{attempt}"], {})}
        answer = await deployment.client.ask(0, "POST", "/api/v1/push", body)
        if answer.status == 201:
            break
        await asyncio.sleep(PUSH_EVERY_SECONDS)
    cpu = sum(usage.cpu_seconds for usage in usage_of([broker.pid]).values())
    await starting
    return answer.ended - began, cpu


async def _take_over(deployment: Deployment, number: int) -> list[float]:
    """Let consumers die with leases, and return the seconds from the end of each to the next delivery."""
    lanes = [LaneName("q", f"p{number}-{lane}") for lane in range(LANES)]
    for lane in lanes:
        await deployment.client.push(0, lane, [f"message-{lane.partition}"])
    return await asyncio.gather(*(_wait_for(deployment, lane) for lane in lanes))


async def _wait_for(deployment: Deployment, lane: LaneName) -> float:
    where = f"{lane.queue}/partition/{lane.partition}"
    while not await deployment.client.pop(0, where, "any"):
        pass
    leased_at = time.monotonic()
    while not (messages := await deployment.client.pop(0, where, "any", timeout=5000)):
        pass
    seconds = time.monotonic() - leased_at - LEASE_SECONDS
    await deployment.client.ack(0, messages, ["completed"] * len(messages))
    return max(0.0, seconds)


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    found = {"count": len(seconds), "p50": quantile(seconds, 0.5), "p99": quantile(seconds, 0.99)}
    return {name: round(value, 3) for name, value in (found | {"max": max(seconds, default=0.0)}).items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres", "cells"])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--leases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlane-liveness-") as name:
        result = asyncio.run(measure(given, Path(name)))
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
