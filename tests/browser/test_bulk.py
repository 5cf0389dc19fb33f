"""Bulk actions: rows are selected with checkboxes, and the broker carries the action out for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlane.store.sqlite.store import SqliteStore
from tests.browser.conftest import opened
from tests.browser.filled import kill
from tests.browser.watched import Watched
from tests.http.test_operations import fail
from tests.http.wire import Wire, serving

if TYPE_CHECKING:
    from playwright.async_api import Browser, Route


async def select(page: Watched, *names: str) -> None:
    for name in names:
        await page.page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()


async def states(wire: Wire, queue: str) -> dict[str, str]:
    lanes = (await wire.get("/api/v1/queues", queue, "lanes")).ok()["lanes"]
    return {one["partition"]: one["state"] for one in lanes}


async def blocked(wire: Wire, queue: str) -> None:
    """Block the lanes of three customers, and leave a fourth one waiting."""
    await wire.configure(queue, retryLimit=0, onExhausted="block", leaseTime=300)
    for n in range(4):
        await wire.push(queue, 1, 2, partition=f"customer-{n}")
    for n in range(3):
        [first] = await wire.pop(queue, partition=f"customer-{n}", batch=1)
        await wire.ack([first], "failed", error="no such card")


async def test_blocked_lanes_are_resumed_and_their_messages_skipped_together(page: Watched, wire: Wire) -> None:
    await blocked(wire, "lanes")
    await page.open("/queues/lanes")
    await select(page, "customer-0", "customer-3")
    await page.shows("2 lanes selected")
    assert await page.violations() == []
    await page.photograph("bulk-lanes")
    await page.click("Resume 1")
    await page.shows("Resumed 1 lane.", inside="#toasts")
    assert (await states(wire, "lanes"))["customer-0"] != "blocked"
    await select(page, "customer-1", "customer-2")
    await page.click("Skip the next message of 2")
    await page.click("Skip", inside="dialog")
    await page.shows("Skipped the message of 2 lanes.", inside="#toasts")
    assert "blocked" not in (await states(wire, "lanes")).values()
    letters = (await wire.get("/api/v1/dlq", queue="lanes")).ok()["messages"]
    assert {one["partition"] for one in letters} == {"customer-1", "customer-2"}


async def test_selected_dead_letters_are_replayed_and_purged(page: Watched, wire: Wire) -> None:
    await wire.configure("letters")
    await kill(wire, "letters", [{"n": n} for n in range(4)], "no such card", group="billing", partition="p")

    async def left(**query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await wire.get("/api/v1/dlq", queue="letters", **query)).ok()["messages"]
        return found

    ids = [one["transactionId"] for one in await left()]
    await page.open("/dead-letters?queue=letters")
    await select(page, *ids[:2])
    await page.click("Replay 2")
    await page.click("Replay", inside="dialog")
    await page.shows("Replayed 2 dead letters.", inside="#toasts")
    assert {one["transactionId"] for one in await left(replayed="true")} == set(ids[:2])
    await page.page.get_by_role("checkbox", name=f"Select {ids[0]}", exact=True).wait_for(state="detached")
    await page.page.get_by_role("checkbox", name="Select all dead letters shown").check()
    assert await page.violations() == []
    await page.click("Purge 2 …")
    await page.click("Purge", inside="dialog")
    await page.shows("Purged 2 dead letters.", inside="#toasts")
    assert {one["transactionId"] for one in await left()} == set(ids[:2])


async def test_selected_queues_are_paused_and_resumed(page: Watched, wire: Wire) -> None:
    names = [f"paused-{n}" for n in range(3)]
    for name in names:
        await wire.push(name, 1)

    async def paused() -> list[bool]:
        return [(await wire.get("/api/v1/queues", name, "pauses")).ok()["pausedAt"] is not None for name in names]

    await page.open("/queues?search=paused-")
    await select(page, *names[:2])
    await page.click("Pause 2")
    await page.shows("Paused 2 queues.", inside="#toasts")
    assert await paused() == [True, True, False]
    await page.page.get_by_role("row", name="paused-0").get_by_text("paused", exact=True).wait_for()
    await page.page.get_by_role("checkbox", name="Select all queues shown").check()
    await page.page.get_by_role("button", name="Resume 2").click()
    await page.shows("Resumed 2 queues.", inside="#toasts")
    assert await paused() == [False, False, False]


async def test_a_refusal_is_shown_and_its_row_stays_selected(page: Watched, wire: Wire) -> None:
    for name in ("refused-0", "refused-1"):
        await wire.push(name, 1)

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"error": "the disk of the store is full", "code": "store_unavailable"})

    page.expected += ["503"]
    await page.page.route("**/queues/refused-1/pause", refuse)
    await page.open("/queues?search=refused-")
    await select(page, "refused-0", "refused-1")
    await page.click("Pause 2")
    await page.shows("Paused 1 queue.", inside="#toasts")
    await page.shows("1 failed: the disk of the store is full", inside="#toasts")
    await page.shows("1 queue selected")
    assert await page.page.get_by_role("checkbox", name="Select refused-1", exact=True).is_checked()


async def test_selected_operations_are_retried_and_discarded(browser: Browser, tmp_path: Path) -> None:
    store = await SqliteStore.open(str(tmp_path / "queue.db"))
    async with serving(store) as wire, opened(browser, wire.base) as page:
        retried = await fail(wire, "orders", {"order": 1})
        discarded = await fail(wire, "letters", {"letter": 1}, {"letter": 2})

        async def status(id: str) -> str:
            return str((await wire.get("/api/v1/operations", id)).ok()["status"])

        await page.open("/operations?status=failed")
        await select(page, *discarded)
        await page.click("Discard 2 …")
        await page.click("Discard", inside="dialog")
        await page.shows("Discarded 2 operations.", inside="#toasts")
        assert [await status(id) for id in discarded] == ["discarded", "discarded"]
        await select(page, *retried)
        await page.click("Retry 1")
        await page.shows("Retried 1 operation.", inside="#toasts")
        assert await status(retried[0]) != "failed"
