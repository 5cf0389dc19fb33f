"""A request that names an object beside a queue or partition: the object of another queue is out of reach.

A key for some queues names its own queue or partition, which is allowed, and an object of a queue that it is not for.
Nothing of that object may be shown or changed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from fairlane.http.route_table import ROUTES
from fairlane.http.router import Route
from tests.http.test_narrow_keys import Narrow, narrow
from tests.http.test_operations import make_busy, make_calm
from tests.queen_package import INSTALLED
from tests.until import until

__all__ = ["narrow"]

PLACES = {"queue", "partition", "partitionId", "partition_id", "source_queue", "queues", "items", "operations"}
"""Names of path segments, parameters and fields that identify a queue."""
OBJECTS = {"transactionId", "partitionId", "leaseId", "ids", "id", "key", "name", "query_id", "traceId", "group_id"}
SECRET = "secret of another queue"
NEW = msgspec.UNSET


def _names(route: Route) -> set[str]:
    found = {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
    for kind in (route.body, route.query):
        found |= set(getattr(kind, "__struct_encode_fields__", ()))
    return found


def _walked() -> set[str]:
    """Return every route that names a queue and an object."""
    nested = {"/api/v1/push", "/api/v1/transaction", "/api/v1/ack/batch"}  # their items name the objects
    return {
        f"{route.method} {route.path}"
        for route in ROUTES
        if route.path in nested or (_names(route) & PLACES and _names(route) & OBJECTS)
    }


class World:
    """Everything that a queue can have, in a queue outside the key's scope, and a message of one inside it."""

    def __init__(self, narrow: Narrow) -> None:
        self.narrow = narrow
        self.operation = ""
        """Id of the failed operation, if there is one."""
        self.at = f"w-{narrow.theirs}"
        """Name of the effect, the stream, the source, the schedule and the worker."""

    async def _admin(self, method: str, path: str, body: Any = NEW) -> Any:
        answer = await self.narrow.ask(method, path, body, admin=True)
        assert answer.status < 300, (method, path, answer.status, answer.body[:300])
        return answer.json if answer.body else None

    async def fill(self) -> World:
        theirs, at = self.narrow.theirs, self.at
        self.mine = await self.narrow.message(self.narrow.mine)
        items: list[dict[str, Any]] = [
            {"queue": theirs, "payload": SECRET, "transactionId": f"{at}-{n}", "partition": f"p{n}"} for n in range(3)
        ]
        items[2] |= {"partition": "later", "delayMs": 3_600_000}
        await self._admin("POST", "/api/v1/push", {"items": items})
        held = {}
        for n in range(2):
            popped = await self._admin("GET", f"/api/v1/pop/queue/{theirs}/partition/p{n}")
            held[n] = popped["messages"][0]
        self.held, dead = held[0], held[1]
        self.partition = self.held["partitionId"]
        ack = {name: dead[name] for name in ("transactionId", "partitionId", "leaseId")}
        await self._admin("POST", f"/api/v1/messages/{dead['partitionId']}/{dead['transactionId']}/dlq", {"error": "x"})
        await self._admin("POST", "/api/v1/ack", ack | {"status": "completed"})
        self.dead = (await self._admin("GET", f"/api/v1/dlq?queue={theirs}"))["messages"][0]
        effect = {"partitionId": self.partition, "value": SECRET}
        await self._admin("POST", f"/api/v1/effects/{at}", effect)
        if INSTALLED:
            await self._fill_queen()
        self.token = (await self._admin("POST", f"/api/v1/sources/{at}/lease", {"seconds": 3600}))["token"]
        await self._admin("POST", f"/api/v1/schedules/{at}", {"queue": theirs, "everySeconds": 3600, "data": SECRET})
        await self._admin("POST", f"/api/v1/workers/{at}", self.report(theirs))
        part, then = {"queue": theirs, "payload": SECRET, "partition": "parts"}, {"queue": theirs, "payload": SECRET}
        fan_in = {"type": "fan_in", "id": at, "items": [part], "then": then}
        await self._admin("POST", "/api/v1/transaction", {"operations": [fan_in]})
        return self

    async def _fill_queen(self) -> None:
        trace = {"transactionId": self.held["transactionId"], "partitionId": self.partition, "data": SECRET}
        await self._admin("POST", "/api/v1/traces", trace | {"traceNames": [self.at]})
        stream = {"name": self.at, "source_queue": self.narrow.theirs, "config_hash": "x"}
        self.stream = (await self._admin("POST", "/streams/v1/queries", stream))["query_id"]
        operation = {"type": "upsert", "key": "k", "value": SECRET}
        cycle = {"query_id": self.stream, "partition_id": self.partition, "state_ops": [operation]}
        assert (await self._admin("POST", "/streams/v1/cycle", cycle | {"consumer_group": "idle"}))["success"]

    async def fail(self) -> str:
        """Return the id of a failed operation of the other queue, which was deleted and created again meanwhile."""
        wire, theirs, item = self.narrow.wire, self.narrow.theirs, {"queue": self.narrow.theirs, "payload": SECRET}
        broker = wire.app.broker
        await broker._engine.operation_drain.stop()
        make_busy(wire)
        [accepted] = await self._admin("POST", "/api/v1/push", {"items": [item]})
        await broker.queues.delete(theirs)
        broker._engine.operation_drain.start()
        self.operation = str(accepted["operationId"])

        async def failed() -> bool:
            return bool((await self.operation_seen())["status"] == "failed")

        await until(failed)
        make_calm(wire)
        await broker.queues.configure(theirs)
        return self.operation

    async def operation_seen(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._admin("GET", f"/api/v1/operations/{self.operation}")
        return found

    def report(self, queue: str) -> dict[str, Any]:
        numbers = {"concurrency": 1, "inHand": 0, "handled": 0, "failed": 0}
        return {"app": "a", "hostname": "h", "pid": 1, "queues": [{"queue": queue, "group": "g", **numbers}]}

    async def seen(self) -> dict[str, Any]:
        """Return everything as the administrator sees it, without times."""
        theirs, at, held = self.narrow.theirs, self.at, self.held["transactionId"]
        found = {
            path: await self._admin("GET", path)
            for path in (
                f"/api/v1/messages/{self.partition}/{held}",
                *([f"/api/v1/traces/{self.partition}/{held}"] if INSTALLED else []),
                f"/api/v1/effects/{at}?partitionId={self.partition}",
                f"/api/v1/dlq?queue={theirs}",
                f"/api/v1/scheduled/{theirs}",
                f"/api/v1/schedules/{at}",
                f"/api/v1/fan-ins/{at}",
                f"/api/v1/sources/{at}",
                f"/api/v1/leases?queue={theirs}",
            )
        }
        if INSTALLED:
            state = {"query_id": self.stream, "partition_id": self.partition}
            found["state"] = await self._admin("POST", "/streams/v1/state/get", state)
        workers = (await self._admin("GET", "/api/v1/workers"))["workers"]
        found["worker"] = [one["queues"] for one in workers if one["id"] == at]
        for path in list(found):
            if path.startswith("/api/v1/leases"):
                found[path] = [one["leaseId"] for one in found[path]["leases"]]
        return found

    def cases(self) -> dict[str, tuple[str, Any]]:
        """Yield for every route a request with the caller's own queue or partition and an object of the other queue."""
        mine, at, own = self.narrow.mine, self.at, self.mine["partitionId"]
        held, lease, later = self.held["transactionId"], self.held["leaseId"], f"{at}-2"
        ack = {"transactionId": held, "partitionId": own, "leaseId": lease, "status": "failed"}
        one, own_dlq = f"/api/v1/messages/{own}/{held}", f"/admin/queues/{mine}/dlq"
        dead, ids = str(self.dead["id"]), {"queue": mine, "ids": [self.dead["id"]]}
        commit = {"queue": mine, "token": self.token, "before": "", "revision": "r", "cursor": "c"}
        return {
            **(self._queen_cases() if INSTALLED else {}),
            "POST /api/v1/push": ("/api/v1/push", {"items": [{"queue": mine, "payload": 1, "transactionId": held}]}),
            "POST /api/v1/ack": ("/api/v1/ack", ack),
            "POST /api/v1/ack/batch": ("/api/v1/ack/batch", {"acknowledgments": [ack]}),
            "POST /api/v1/transaction": (
                "/api/v1/transaction",
                {"operations": [{"type": "ack", **ack}], "requiredLeases": [lease]},
            ),
            "POST /api/v1/scheduled/{queue}/{partition}/{transactionId}": (
                f"/api/v1/scheduled/{mine}/later/{later}",
                {"delayMs": 1},
            ),
            "DELETE /api/v1/scheduled/{queue}/{partition}/{transactionId}": (
                f"/api/v1/scheduled/{mine}/later/{later}",
                NEW,
            ),
            "POST /api/v1/schedules/{name}": (f"/api/v1/schedules/{at}", {"queue": mine, "everySeconds": 1}),
            "POST /api/v1/workers/{id}": (f"/api/v1/workers/{at}", self.report(mine)),
            "POST /api/v1/sources/{name}/commit": (f"/api/v1/sources/{at}/commit", commit),
            "GET /api/v1/effects/{key}": (f"/api/v1/effects/{at}?partitionId={own}", NEW),
            "POST /api/v1/effects/{key}": (f"/api/v1/effects/{at}", {"partitionId": own, "value": "forged"}),
            "GET /api/v1/messages": (f"/api/v1/messages?queue={mine}&transactionId={held}", NEW),
            "GET /api/v1/messages/{partitionId}/{transactionId}": (one, NEW),
            "GET /api/v1/messages/{partitionId}/{transactionId}/result": (f"{one}/result", NEW),
            "GET /api/v1/queues/{queue}/results/{transactionId}": (f"/api/v1/queues/{mine}/results/{held}", NEW),
            "DELETE /api/v1/messages/{partitionId}/{transactionId}": (one, NEW),
            "POST /api/v1/messages/{partitionId}/{transactionId}/retry": (f"{one}/retry", NEW),
            "POST /api/v1/messages/{partitionId}/{transactionId}/dlq": (f"{one}/dlq", {}),
            "POST /api/v1/messages/{partitionId}/{transactionId}/cancel": (f"{one}/cancel", {}),
            "POST /api/v1/queues/{queue}/cancellations/{transactionId}": (
                f"/api/v1/queues/{mine}/cancellations/{held}",
                {},
            ),
            "GET /api/v1/dlq": (f"/api/v1/dlq?queue={mine}&ids={dead}", NEW),
            "POST /api/v1/dlq/replay": ("/api/v1/dlq/replay", ids),
            "DELETE /api/v1/dlq": (f"/api/v1/dlq?queue={mine}&ids={dead}", NEW),
            "GET /admin/queues/{queue}/dlq/{id}": (f"{own_dlq}/{dead}", NEW),
            "POST /admin/queues/{queue}/dlq/{id}/replay": (f"{own_dlq}/{dead}/replay", NEW),
            "POST /admin/queues/{queue}/dlq/replay": (f"{own_dlq}/replay", {"ids": [dead]}),
            "DELETE /admin/queues/{queue}/dlq/{id}": (f"{own_dlq}/{dead}", NEW),
            "POST /api/v1/operations/retry": ("/api/v1/operations/retry", {"queue": mine, "ids": [self.operation]}),
            "POST /api/v1/operations/discard": ("/api/v1/operations/discard", {"queue": mine, "ids": [self.operation]}),
        }

    def _queen_cases(self) -> dict[str, tuple[str, Any]]:
        mine, at, own, held = self.narrow.mine, self.at, self.mine["partitionId"], self.held["transactionId"]
        operation = {"type": "upsert", "key": "k", "value": "forged"}
        state = {"query_id": self.stream, "partition_id": own}
        group = {"consumer_group": "idle"}
        return {
            "POST /api/v1/traces": (
                "/api/v1/traces",
                {"transactionId": held, "partitionId": own, "data": "forged", "traceNames": [at]},
            ),
            "GET /api/v1/traces/{partitionId}/{transactionId}": (f"/api/v1/traces/{own}/{held}", NEW),
            "POST /streams/v1/queries": (
                "/streams/v1/queries",
                {"name": at, "source_queue": mine, "config_hash": "y", "reset": True},
            ),
            "POST /streams/v1/state/get": ("/streams/v1/state/get", state),
            "POST /streams/v1/cycle": ("/streams/v1/cycle", state | group | {"state_ops": [operation]}),
        }


@pytest.fixture
async def world(narrow: Narrow) -> World:
    return await World(narrow).fill()


async def test_every_route_that_names_an_object_and_a_queue_is_walked(world: World) -> None:
    assert set(world.cases()) == _walked()


OPERATIONS = {"POST /api/v1/operations/retry", "POST /api/v1/operations/discard"}


@pytest.mark.parametrize("route", sorted(_walked() - OPERATIONS))
async def test_an_object_of_another_queue_is_neither_shown_nor_changed(world: World, route: str) -> None:
    before = await world.seen()
    assert msgspec.json.encode(before).count(SECRET.encode()) >= (5 if INSTALLED else 3)  # what is compared is there
    path, body = world.cases()[route]
    answer = await world.narrow.ask(route.partition(" ")[0], path, body)
    assert answer.status < 500, answer
    assert SECRET.encode() not in answer.body
    assert await world.seen() == before


async def test_a_worker_is_ended_by_whoever_may_pop_from_its_queues(world: World) -> None:
    narrow, mine = world.narrow, f"/api/v1/workers/own-{world.at}"
    (await narrow.ask("DELETE", f"/api/v1/workers/{world.at}")).refused(403, "forbidden")
    (await narrow.ask("POST", mine, world.report(narrow.theirs))).refused(403, "forbidden")
    (await narrow.ask("POST", mine, world.report(narrow.mine))).ok(204)
    assert (await narrow.ask("DELETE", mine)).ok()["left"]


async def test_a_source_is_committed_to_by_whoever_may_lease_it(world: World) -> None:
    refused = await world.narrow.ask("POST", *world.cases()["POST /api/v1/sources/{name}/commit"])
    assert "for all queues" in refused.refused(403, "forbidden")["error"]


@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_a_failed_operation_of_another_queue_is_neither_retried_nor_discarded(world: World, verb: str) -> None:
    narrow, operation = world.narrow, await world.fail()
    before, needed = await world.operation_seen(), "replay" if verb == "retry" else "purge"
    path, body = world.cases()[f"POST /api/v1/operations/{verb}"]
    (await narrow.ask("POST", path, body)).refused(400, "invalid_request")
    for all_queues in ({"ids": [operation]}, {"all": True}):
        refused = await narrow.ask("POST", path, all_queues)
        assert f"the scope {needed}" in refused.refused(403, "forbidden")["error"]
    for one_queue in (
        await narrow.ask("POST", path, {"queue": narrow.theirs}),
        await narrow.ask("POST", f"/api/v1/operations/{operation}/{verb}"),
    ):
        assert f"{needed}:{narrow.theirs}" in one_queue.refused(403, "forbidden")["error"]
    for own in ({"queue": narrow.mine}, {"queue": narrow.mine, "cursor": str(UUID(int=int(UUID(operation)) - 1))}):
        assert (await narrow.ask("POST", path, own)).ok()["done"] == []
    (await narrow.ask("GET", f"/api/v1/operations/{operation}")).refused(403, "forbidden")
    assert await world.operation_seen() == before
    settled = (await narrow.ask("POST", path, {"ids": [operation]}, admin=True)).ok()
    assert settled["done"] == [operation], "whoever may does it"
