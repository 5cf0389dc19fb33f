"""Three incidents, handled by an operator in the browser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.broker_process import BrokerProcess
from tests.browser.conftest import opened
from tests.browser.watched import Watched
from tests.faults.outages import crashed
from tests.http.wire import Wire
from tests.postgres import PostgresServer, running_server

if TYPE_CHECKING:
    from playwright.async_api import Browser

ALERTS = 1000
LETTERS = 200


async def test_a_bad_deployment_kills_200_messages_and_all_are_replayed_with_progress(
    page: Watched, wire: Wire
) -> None:
    await wire.configure("orders", retryLimit=0, leaseTime=300)
    for n in range(10):
        orders = [{"order": n * 20 + i, "total": i} for i in range(LETTERS // 10)]
        await wire.push("orders", *orders, partition=f"customer-{n}")
    # The broken deployment: every message fails, each with a different text.
    while popped := await wire.pop("orders", consumerGroup="billing", batch=100, partitions=10):
        for message in popped:
            await wire.ack([message], "dlq", error=f"KeyError: 'price' in order {message['data']['order']}")

    await page.open("/dead-letters")
    row = page.page.get_by_role("row", name="KeyError")
    await row.get_by_text("200", exact=True).first.wait_for()  # grouped as one error although the texts differ
    await page.photograph("story-bad-deployment")

    # The deployment is fixed. The operator replays all dead letters and watches.
    done: list[int] = []

    async def consume() -> None:
        while len(done) < LETTERS:
            found = await wire.pop(
                "orders", consumerGroup="billing", batch=100, partitions=10, wait="true", timeout=1000
            )
            if found:
                done.extend(one["data"]["order"] for one in found)
                await wire.ack(found)

    consumer = asyncio.create_task(consume())
    try:
        await row.get_by_role("button", name="Replay").click()
        await page.click("Replay", inside="dialog")
        bar = page.page.get_by_role("progressbar")
        await bar.wait_for()
        await page.shows("Replayed 200 messages")
        assert await bar.get_attribute("aria-valuenow") == "200"
        await page.photograph("story-bad-deployment-replayed")
        async with asyncio.timeout(60):
            await consumer
    finally:
        consumer.cancel()
    assert sorted(done) == list(range(LETTERS))
    assert (await wire.get("/api/v1/dlq", queue="orders", replayed="false")).ok()["total"] == 0
    assert (await wire.get("/api/v1/dlq", queue="orders", replayed="true")).ok()["total"] == LETTERS


async def test_why_is_customer_7_stuck(page: Watched, wire: Wire) -> None:
    await wire.configure("payments", retryLimit=1, onExhausted="block", leaseTime=300)
    for n in range(20):
        await wire.push("payments", {"amount": n}, {"amount": n + 1}, partition=f"customer-{n}")
    for _ in range(2):
        [first] = await wire.pop("payments", partition="customer-7", consumerGroup="billing", batch=1)
        await wire.ack([first], "failed", error="the bank refused card 4711")
    while popped := await wire.pop("payments", consumerGroup="billing", partitions=20):
        await wire.ack(popped)

    # The group lags by two messages of one lane. That lane is listed first and links to the reason.
    await page.open("/groups/payments/billing")
    first_row = page.page.get_by_role("region", name="Lanes").get_by_role("row").nth(1)
    await first_row.get_by_text("customer-7").wait_for()
    assert "blocked" in await first_row.inner_text()
    assert "the bank refused card 4711" in await first_row.inner_text()
    await first_row.get_by_role("link", name="customer-7").click()
    await page.ready()
    explained = (await wire.get("/api/v1/explain/payments/customer-7", group="billing")).ok()
    await page.shows(explained["sentence"])
    await page.photograph("story-customer-7")
    # The service is repaired: the operator retries, and the lane moves.
    await page.click("Try again")
    await page.page.locator(".explain", has_not_text="blocked").wait_for()
    popped = await wire.pop("payments", partition="customer-7", consumerGroup="billing")
    assert [one["data"]["amount"] for one in popped] == [7, 8]
    await wire.ack(popped)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A broker of its own, because this test crashes its server."""
    with running_server(18) as server:
        yield server


async def test_1000_alerts_during_an_outage_are_taken_and_then_stored(
    browser: Browser, server: PostgresServer, tmp_path: Path
) -> None:
    async with server.fresh_database() as url, aiohttp.ClientSession() as session:
        broker = BrokerProcess(url, data_dir=tmp_path)
        await asyncio.to_thread(broker.start)
        try:
            wire = Wire(None, session, broker.url)
            await wire.push("alerts", {"alert": "before"}, partition="disk")
            async with opened(browser, broker.url) as page:
                page.expected += ["503"]  # while the store is away some answers are errors, and the page says so
                await page.open("/operations")
                async with crashed(server):
                    for start in range(0, ALERTS, 100):
                        alerts = [(f"host-{n % 7}", {"alert": n}) for n in range(start, start + 100)]
                        items = [{"queue": "alerts", "partition": host, "payload": alert} for host, alert in alerts]
                        (await wire.post("/api/v1/push", body={"items": items})).ok(202)
                    await page.shows("collecting: the store is unavailable")
                    await page.shows("1,000 messages in")
                    await page.photograph("story-outage")
                await page.shows("0 messages in 0 entries of 0 lanes")
                await page.page.locator(".stat", has_text="Store").get_by_text("answers").wait_for()
                await page.photograph("story-outage-over")
            taken: dict[str, list[Any]] = {}
            while sum(map(len, taken.values())) < ALERTS + 1:
                popped = await wire.pop("alerts", batch=1000, partitions=10, wait="true", timeout=5000)
                for one in popped:
                    taken.setdefault(one["partition"], []).append(one["data"]["alert"])
                if popped:
                    await wire.ack(popped)
            assert taken.pop("disk") == ["before"]
            assert taken == {f"host-{n}": list(range(n, ALERTS, 7)) for n in range(7)}
        finally:
            await asyncio.to_thread(broker.stop)
