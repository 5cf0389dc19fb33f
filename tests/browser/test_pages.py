"""Every page of the dashboard loads without an error, agrees with the API and is accessible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.browser.filled import workers
from tests.browser.watched import Watched
from tests.http.wire import Wire

Said = Callable[[Wire], Awaitable[list[str]]]


def named(path: str, key: str, *names: str) -> Said:
    """Return these fields of each object that the API returns at a path."""

    async def said(wire: Wire) -> list[str]:
        found = (await wire.get(path)).ok()
        return [str(one[name]) for one in (found[key] if key else found) for name in names]

    return said


def text(*parts: str) -> Said:
    async def said(wire: Wire) -> list[str]:
        return list(parts)

    return said


async def alive(wire: Wire) -> list[str]:
    """Report a worker twice, so that it is alive for a while and has a rate."""
    await workers(wire, handled=1500)
    return await named("/api/v1/workers", "workers", "app", "hostname")(wire)


async def errors(wire: Wire) -> list[str]:
    found: list[Any] = (await wire.get("/api/v1/dlq/errors")).ok()["errors"]
    return [one["error"] for one in found if "timeout" not in one["error"]] + [f"{sum(one['count'] for one in found)}"]


PAGES: dict[str, tuple[str, Said]] = {
    "overview": ("/", text("Overview")),
    "queues": ("/queues", named("/api/v1/resources/queues", "queues", "name")),
    "queue": ("/queues/orders", text("orders", "billing", "shipping")),
    "partition": ("/queues/orders/partitions/customer-3?group=billing", text("customer-3", "Around the cursor")),
    "stuck": ("/queues/payments/partitions/customer-7", text("the bank refused card 4711", "Try again")),
    "groups": ("/groups", named("/api/v1/consumer-groups", "", "queueName")),
    "group": ("/groups/orders/billing", text("customer-0", "customer-11", "To read")),
    "dead-letters": ("/dead-letters", errors),
    "operations": ("/operations", text("There are no operations.", "Journal", "answers")),
    "workers": ("/workers", alive),
    "schedules": ("/schedules", named("/api/v1/schedules", "schedules", "name", "queue")),
    "hooks": ("/hooks", text("Webhooks")),
    "sources": ("/sources", named("/api/v1/sources", "sources", "name", "cursor")),
    "specs": ("/specs", named("/api/v1/spec/versions", "versions", "version", "app", "appliedBy")),
    "spec": ("/specs/2?show=changes", text("max_attempts: 5", "max_attempts: 8", "in force")),
    "tenants": ("/tenants", text("default", "Payload")),
    "tenant": ("/tenants?tenant=default", text("Unfinished messages", "no limit", "Create a key …")),
    "retention": ("/retention", text("Deleted messages", "Nothing was deleted in the last day.")),
    "keys": ("/keys", text("There is no key")),
    "audit": ("/audit", text("Outcome")),
    "system": ("/system", text("Verbs", "differ from the defaults", "Memory")),
}


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_loads_and_shows_what_the_api_says(page: Watched, filled_wire: Wire, name: str) -> None:
    route, said = PAGES[name]
    await page.open(route)
    for part in await said(filled_wire):
        await page.shows(part)
    await page.photograph(name)
    assert await page.violations() == []


async def test_a_message_and_a_dead_letter(page: Watched, filled_wire: Wire) -> None:
    [letter, *_] = (await filled_wire.get("/api/v1/dlq", error="KeyError")).ok()["messages"]
    await page.open(f"/dead-letters/orders/{letter['id']}")
    for part in (letter["transactionId"], letter["errorMessage"], '"currency"', "Attempt 1"):
        await page.shows(part)
    await page.photograph("dead-letter")
    assert await page.violations() == []
    await page.open(f"/messages/{letter['partitionId']}/{letter['transactionId']}")
    await page.shows(letter["transactionId"])
    await page.photograph("message")
    assert await page.violations() == []


async def test_the_page_of_a_broker_that_has_nothing_says_what_to_do(page: Watched, wire: Wire) -> None:
    """The broker of this module has everything, so the test filters by a text that nothing matches."""
    await page.open("/groups?search=nobody-has-this-name")
    await page.shows("No group matches.")
    await page.open("/nowhere")
    await page.shows("This page does not exist.")


async def test_dark_is_as_legible_as_light(page: Watched, filled_wire: Wire) -> None:
    await page.page.emulate_media(color_scheme="dark")
    for route in ("/", "/dead-letters", "/groups/orders/billing", "/specs/2?show=changes", "/workers", "/hooks"):
        await page.open(route)
        assert await page.violations() == [], route
