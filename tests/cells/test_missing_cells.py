"""Lists and totals while a cell is down: they answer for the other cells, and name the one that is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.client import Client
from fairlane.errors import Unavailable
from fairlane.http.route_table import ROUTES
from fairlane.store.cells.directory import node_of
from fairlane.store.opening import open_store
from tests.cells.conftest import Servers, Urls
from tests.faults.outages import crashed, frozen
from tests.http.wire import Wire, serving
from tests.spec.samples import compiled
from tests.until import until

LISTS = [
    *(route.path for route in ROUTES if route.method == "GET" and route.live and "{" not in route.path),
    "/api/v1/resources/partitions?queue=orders-left",
    "/admin/queues",
    "/api/v1/search?text=orders",
    "/api/v1/messages?queue=orders-left",
]
LISTS.remove("/api/v1/resources/partitions")  # it needs `queue`
IN_THE_HOME = {
    *("audit", "history", "hooks", "keys", "schedules", "sources"),
    *("spec", "staged", "tenant", "tenants", "traces", "workers"),
}
"""First parts of paths whose answer is in the home alone."""


@pytest.fixture
async def wire(cells: Urls) -> AsyncIterator[Wire]:
    async with serving(await open_store(cells.home)) as wire:
        yield wire


async def fill(wire: Wire, down: str) -> str:
    """Create a queue with a message, a failed one and a group in each cell. Returns the header that is expected."""
    lost, left = (0, 1) if down == "home" else (1, 0)
    for name, cell in (("orders-lost", lost), ("orders-left", left)):
        await wire.configure(name, cell=str(cell), retryLimit=0)
        await wire.push(name, 1, 2)
        [one] = (await wire.get("/api/v1/pop/queue", name, consumerGroup="g", batch=1)).ok()["messages"]
        failed = {"transactionId": one["transactionId"], "partitionId": one["partitionId"], "leaseId": one["leaseId"]}
        body = {"acknowledgments": [{**failed, "status": "failed", "error": "boom"}], "consumerGroup": "g"}
        (await wire.post("/api/v1/ack/batch", body=body)).ok()
    return str(lost)


async def overview(wire: Wire) -> dict[str, Any]:
    return dict((await wire.get("/api/v1/resources/overview")).ok())


@pytest.mark.parametrize("down", ["home", "second"])
async def test_lists_and_totals_answer_for_the_other_cells_and_name_the_missing_one(
    wire: Wire, servers: Servers, down: str
) -> None:
    missing = await fill(wire, down)
    async with crashed(getattr(servers, down)):
        await overview(wire)
        for path in LISTS:
            if down == "home" and IN_THE_HOME & set(path.split("/")[:4]):
                continue
            answer = await wire.get(path)
            assert (answer.status, answer.headers.get("fairlane-missing-cells")) == (200, missing), (path, answer)
        assert (await overview(wire))["queues"] == 1
        listed = (await wire.get("/api/v1/resources/queues")).ok()
        assert [one["name"] for one in listed["queues"]] == ["orders-left"]
        assert [one["queue"] for one in (await wire.get("/api/v1/dlq")).ok()["messages"]] == ["orders-left"]
        found = (await wire.get("/api/v1/findings")).ok()["findings"]
        [finding] = [one for one in found if one["kind"] == "cell_away"]
        assert finding["sentence"].startswith(
            "The home (cell 0) does not answer: " if down == "home" else "Cell 1 does not answer: "
        )
        assert "Its queues are missing in lists and totals." in finding["sentence"]
        metrics = (await wire.get("/metrics/prometheus")).body.decode()
        assert f'fairlane_cell_up{{cell="{missing}"}} 0' in metrics
        assert 'queue="orders-left"' in metrics
        assert "fairlane_store_up 1" in metrics
        assert (await wire.get("/api/v1/resources/queues", "orders-lost")).status == 503
        assert (await wire.get("/api/v1/resources/queues", "orders-left")).status == 200

    async def complete() -> bool:
        answer = await wire.get("/api/v1/resources/overview")
        return "fairlane-missing-cells" not in answer.headers and answer.ok()["queues"] == 2

    await until(complete)
    metrics = (await wire.get("/metrics/prometheus")).body.decode()
    assert f'fairlane_cell_up{{cell="{missing}"}} 1' in metrics


@pytest.mark.parametrize("down", ["home", "second"])
async def test_a_list_waits_for_a_frozen_cell_only_until_it_is_known_to_be_down(
    wire: Wire, servers: Servers, down: str
) -> None:
    missing = await fill(wire, down)
    with frozen(getattr(servers, down)):
        answer = await wire.get("/api/v1/resources/queues")
        assert [one["name"] for one in answer.ok()["queues"]] == ["orders-left"]
        assert answer.headers["fairlane-missing-cells"] == missing


async def test_verbs_that_need_every_cell_are_refused_and_change_nothing(cells: Urls, servers: Servers) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        await broker.tenants.create("acme")
        for cell in (0, 1):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            await broker.push(f"orders-{cell}", 1)
            assert (await broker.pop(f"orders-{cell}", group="g")).messages
        async with crashed(servers.second):
            with pytest.raises(Unavailable, match=r"cell 1|does not answer"):
                await broker.tenants.delete("acme")
            with pytest.raises(Unavailable, match=r"cell 1|does not answer"):
                await broker.groups.forget("g")
            with pytest.raises(Unavailable, match=r"cell 1|does not answer"):
                await broker.specs.plan(msgspec.json.encode(compiled('app shop { queue "orders-0" {} }').spec))
            assert [one.name for one in await broker.groups.all("orders-0")] == ["g"]
            assert "acme" in {one.name for one in await broker.tenants.all()}


async def test_the_api_lists_the_cells_without_credentials(wire: Wire, servers: Servers, cells: Urls) -> None:
    await fill(wire, "second")
    async with Client(wire.base) as client:
        first, second = await client.cells.all()
        assert (first.cell, first.schema, first.state, first.queues) == (0, "fairlane", "open", 1)
        assert (second.cell, second.schema, second.node) == (1, "fairlane_1", node_of(cells.second))
        assert "postgres@" not in (await wire.get("/api/v1/cells")).body.decode()

        async def rate() -> bool:
            await wire.push("orders-lost", 1)
            return bool((await client.cells.all())[1].messages_per_second)

        await until(rate)
        async with crashed(servers.second):

            async def down() -> bool:
                return (await client.cells.all())[1].state == "unavailable"

            await until(down)
            first, second = await client.cells.all()
            assert (first.queues, second.queues, bool(second.error)) == (1, None, True)
    assert (await wire.get("/api/v1/whoami")).ok()["cells"] == 2


@pytest.mark.parametrize(
    ("url", "node"),
    [
        ("postgresql://me:secret@pg1:5433/queue?sslmode=require", "pg1:5433/queue"),
        ("postgresql://pg1,pg2/queue", "pg1,pg2/queue"),
        ("postgresql://me@/queue?host=/var/run", "/var/run/queue"),
        ("postgresql:///queue", "localhost/queue"),
        ("postgresql://me:what?@pg1/queue", "..."),
    ],
)
def test_a_node_is_shown_without_user_and_password(url: str, node: str) -> None:
    assert node_of(url) == node
