"""A store with an object of every kind, so that every page has something to show."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec

from tests.http.wire import Wire
from tests.spec.samples import INCIDENTS, compiled

SECRETS = {"PAGERDUTY_WEBHOOK_SECRET": "a secret of 32 characters or more"}
ERRORS = [
    "KeyError: 'total'",
    "card declined by the bank",
    "timeout after 30 s at 10.0.0.7",
    "timeout after 31 s at 10.0.0.9",
]


async def kill(wire: Wire, queue: str, payloads: list[Any], error: str, *, group: str, partition: str) -> None:
    """Make dead letters: messages whose attempts all fail."""
    await wire.push(queue, *payloads, partition=partition)
    popped = await wire.pop(queue, partition=partition, consumerGroup=group, batch=len(payloads))
    assert len(popped) == len(payloads)
    await wire.ack(popped, "dlq", error=error)


async def dead(wire: Wire, queue: str = "orders", group: str = "billing", *, each: int = 6) -> None:
    await wire.configure(queue, retryLimit=0, leaseTime=300)
    for n, error in enumerate(ERRORS):
        payloads = [{"order": n * 100 + i, "total": None, "currency": "EUR"} for i in range(each - n)]
        await kill(wire, queue, payloads, error, group=group, partition=f"customer-{n}")


async def live(wire: Wire, queue: str = "orders") -> None:
    """Make messages that wait, are leased, finished, failed and blocked."""
    for n in range(12):
        await wire.push(
            queue, *[{"order": 1000 * n + i, "total": 9.99} for i in range(5 + n)], partition=f"customer-{n}"
        )
    for group in ("billing", "shipping"):
        for n in range(6):
            popped = await wire.pop(queue, partition=f"customer-{n}", consumerGroup=group, batch=3)
            if popped and n % 3:
                await wire.ack(popped)
    blocked = "payments"
    await wire.configure(blocked, retryLimit=1, onExhausted="block", leaseTime=300)
    await wire.push(blocked, *[{"amount": n} for n in range(4)], partition="customer-7")
    for _ in range(2):
        [first, *_] = await wire.pop(blocked, partition="customer-7", batch=1)
        await wire.ack([first], "failed", error="the bank refused card 4711")


async def scheduled(wire: Wire) -> None:
    for name, options in {
        "nightly-report": {"queue": "reports", "cron": "0 2 * * *", "timezone": "Europe/Berlin"},
        "heartbeat": {"queue": "beats", "everySeconds": 30},
        "month-end": {"queue": "reports", "cron": "0 6 1 * *", "missed": "all"},
    }.items():
        (await wire.post("/api/v1/schedules", name, body=options)).ok()
    (await wire.post("/api/v1/schedules", "month-end", "pause")).ok()


async def sources(wire: Wire) -> None:
    for name, records in (("crm/customers", 3), ("shop/orders", 2)):
        token = (await wire.post("/api/v1/sources", name, "lease", body={"seconds": 60})).ok()["token"]
        some = [{"key": str(n), "hash": "h", "data": {"id": n}} for n in range(records)]
        page = {"token": token, "before": "", "revision": "r1", "queue": "records", "cursor": "?after=2026-11-17"}
        (await wire.post("/api/v1/sources", name, "commit", body={**page, "records": some})).ok()


async def workers(wire: Wire, *, handled: int = 1200) -> None:
    queues = [
        {
            "queue": "orders",
            "group": "billing",
            "concurrency": 8,
            "inHand": 5,
            "handled": handled,
            "failed": 14,
            "meanMs": 12.5,
        },
        {
            "queue": "payments",
            "group": "billing",
            "concurrency": 4,
            "inHand": 0,
            "handled": 80,
            "failed": 0,
            "meanMs": 210.0,
        },
    ]
    current = [f"0192f3a1-7c5e-7d1a-9b1f-0000000000{n:02}" for n in range(5)]
    report = {"app": "shop", "hostname": "worker-1", "pid": 4711, "queues": queues, "current": current}
    for id, host in (("w1", "worker-1"), ("w2", "worker-2")):
        body = report | {"hostname": host, "current": current if id == "w1" else []}
        assert (await wire.post("/api/v1/workers", id, body=body)).status == 204


async def specs(wire: Wire) -> None:
    for text in (INCIDENTS, INCIDENTS.replace("max_attempts: 5", "max_attempts: 8")):
        document = msgspec.to_builtins(compiled(text).spec)
        body = {"spec": document, "source": text, "appliedBy": "anna"}
        (await wire.post("/api/v1/spec/apply", body=body)).ok()


async def hook(wire: Wire, *, signed: bool = True) -> int:
    """Send a webhook as its sender does. Returns the status of the answer."""
    body = msgspec.json.encode({"incident": {"id": "PD-1", "title": "disk full", "urgency": "high"}})
    secret = SECRETS["PAGERDUTY_WEBHOOK_SECRET"] if signed else "another secret of 32 characters .."
    signature = "v1=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"x-pagerduty-signature": signature, "x-webhook-id": "1"}
    return (await wire.ask("POST", "/hook/PagerDutyAlert", body=body, headers=headers)).status


async def everything(wire: Wire) -> None:
    await dead(wire)
    await live(wire)
    await scheduled(wire)
    await sources(wire)
    await workers(wire)
    await specs(wire)
    assert await hook(wire) == 202
    assert await hook(wire, signed=False) == 401
