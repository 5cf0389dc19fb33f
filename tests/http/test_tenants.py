"""Tenants over HTTP: every route with every id of another tenant, quotas, and routes of the operator."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.http.route_table import ROUTES
from fairlane.http.router import EVENTS, Route
from fairlane.model.message import PushItem
from fairlane.model.principal import SIGNATURE
from fairlane.model.tenant import Quotas
from fairlane.wire.base import encode
from fairlane.wire.schedules import ScheduleOptions
from fairlane.wire.workers import EffectBody
from tests.conformance.backends import Backend, PostgresBackend, SqliteBackend
from tests.conformance.configurations import Configuration
from tests.http.wire import Answer, Wire
from tests.queen_package import INSTALLED
from tests.spec.samples import compiled
from tests.until import until

SECRET = "the-secret-of-another-tenant"
SPEC = {"app": "shop", "queues": {"typed": {"options": {}}}, "webhooks": {"Webhook": {"queue": "typed"}}}
WORKER = {"app": "shop", "hostname": SECRET, "pid": 1, "queues": []}
KEYED = {
    "app": "shop",
    "queues": {"keyed": {"key": "who", "options": {}}, "plain": {"options": {}}},
    "webhooks": {
        "Keyed": {"queue": "plain", "idempotency": {"by": "expression", "expression": "payload.id"}},
        "Plain": {"queue": "plain"},
    },
}
QUEUE_MAKERS: dict[str, tuple[str, str, Any]] = {
    "push": ("POST", "/api/v1/push", {"items": [{"queue": "new", "payload": 1}]}),
    "push of several": ("POST", "/api/v1/push", {"items": [{"queue": f"new{n}", "payload": 1} for n in range(2)]}),
    "push for later": ("POST", "/api/v1/push", {"items": [{"queue": "new", "payload": 1, "delayMs": 60_000}]}),
    "transaction": (
        "POST",
        "/api/v1/transaction",
        {"operations": [{"type": "push", "items": [{"queue": "new", "payload": 1}]}]},
    ),
    "configure": ("POST", "/api/v1/configure", {"queue": "new"}),
    "dead letter queue of another": (
        "PATCH",
        "/api/v1/resources/queues/there",
        {"options": {"deadLetterQueue": "new"}},
    ),
    "queue with a dead letter queue": (
        "POST",
        "/api/v1/configure",
        {"queue": "new", "options": {"deadLetterQueue": "new2"}},
    ),
    "spec": ("POST", "/api/v1/spec/apply", {"spec": compiled("app New { queue new {} }").spec}),
}
GROUP = "readers"
PUSH = {"items": [{"queue": "q", "payload": 1}]}


@pytest.fixture(params=["sqlite", "postgres18"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A separate database, because keys created here require keys at every broker on it."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "queue.db")
    return PostgresBackend(request.getfixturevalue("postgres18"), Configuration("tenants", postgres=18))


class Tenant:
    """A caller with the administrator's key of its own tenant."""

    def __init__(self, wire: Wire, broker: Broker, key: str) -> None:
        self.wire = wire
        self.broker = broker
        self.headers = {"authorization": f"Bearer {key}"}
        self.ids: dict[str, str] = {}

    async def ask(self, method: str, path: str, **more: Any) -> Answer:
        return await self.wire.ask(method, path, headers=self.headers, **more)

    async def fill(self) -> None:
        """Create one of everything that has a name or an id, each containing the secret."""
        broker, queue = self.broker, "orders"
        await broker.push_many([PushItem(queue=queue, payload=encode({"of": SECRET, "n": n})) for n in range(3)])
        dead = await broker.pop(queue, group=GROUP)
        await broker.ack(dead, "dlq", error=SECRET)
        [leased] = batch = await broker.pop(queue, group=GROUP, lease_seconds=600)
        where, tx = str(leased.partition_id), leased.transaction_id
        data = msgspec.Raw(encode(SECRET))
        if INSTALLED:
            note = {"transactionId": tx, "partitionId": where, "data": SECRET, "traceNames": ["note"]}
            (await self.ask("POST", "/api/v1/traces", body=note)).ok(201)
            stream = {"name": "s", "source_queue": queue, "config_hash": SECRET}
            self.ids["query_id"] = (await self.ask("POST", "/streams/v1/queries", body=stream)).ok()["query_id"]
        await broker.effects.keep("effect", EffectBody(partition_id=where, value=data, seconds=600))
        await broker.push(queue, SECRET, delay_ms=3_600_000, transaction_id="later")
        await broker.schedules.define("tick", ScheduleOptions(queue="ticks", data=data, every_seconds=3600))
        await broker.sources.lease("source", seconds=600)
        await broker.specs.apply(encode(SPEC), consent=True)
        [letter] = await broker.dead_letters.page(queue)
        key = await broker.keys.create("second", role="read-only")
        (await self.ask("POST", "/api/v1/workers/w", body=WORKER)).ok(204)
        self.ids |= {
            "queue": queue,
            "queueName": queue,
            "consumerGroup": GROUP,
            "group": GROUP,
            "app": "shop",
            "key": key.id,
            "partition": leased.partition,
            "partitionId": where,
            "partition_id": where,
            "transactionId": tx,
            "leaseId": str(batch.lease),
            "lease": str(batch.lease),
            "traceName": "note",
            "id": letter.id,
            "version": "1",
            "source": "source",
            "traceId": str(uuid4()),
            "tenant": broker.tenant,
        }

    async def state(self) -> bytes:
        """Return the state that another tenant must not change."""
        broker = self.broker
        groups = [(one.group.name, one.lag, one.leased) for _, one in await broker.queues.statistics.groups()]
        found = [
            *(await broker.queues.all(), await broker.dead_letters.page("orders"), await broker.schedules.all()),
            *(await broker.sources.all(), await broker.specs.all(), groups),
            *(
                await broker.workers.all(),
                await broker.scheduled.page("orders"),
                await broker.tenants.show(broker.tenant),
            ),
        ]
        if INSTALLED:
            notes = f"/api/v1/traces/{self.ids['partitionId']}/{self.ids['transactionId']}"
            found += [(await self.ask("GET", notes)).ok(), await self._query()]
        return encode([one for one in found if one is not None])

    async def _query(self) -> Any:
        from fairlane.queen.store.streams import StoredStreams

        streams = self.broker._engine.store.family(StoredStreams)
        return await streams.get(self.broker.tenant, UUID(self.ids["query_id"]))


async def tenant(wire: Wire, quotas: Quotas | None = None) -> Tenant:
    broker = wire.app.broker
    made = await broker.tenants.create(f"t-{uuid4().hex[:8]}", quotas or Quotas())
    own = broker.of(made.name)
    return Tenant(wire, own, (await own.keys.create("admin", role="admin")).key)


async def operator(wire: Wire) -> Tenant:
    broker = wire.app.broker
    return Tenant(wire, broker, (await broker.keys.create(f"k{uuid4().hex}", role="admin")).key)


def values(route: Route, ids: dict[str, str]) -> list[dict[str, str]]:
    """Return the values for the parameters of a path: every existing name for each parameter."""
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    of = [ids.get(name) for name in names]
    if None not in of:
        return [dict(zip(names, of, strict=True))]  # type: ignore[arg-type]
    tries = ["tick", "source", "Webhook", "effect", "w", "later", ids["transactionId"], ids["leaseId"]]
    return [{name: ids.get(name, one) for name in names} for one in tries]


def body(kind: Any, ids: dict[str, str]) -> Any:
    """Return a body of this kind with the ids of another tenant wherever an id fits."""
    if kind in (None, msgspec.Raw) or not hasattr(kind, "__struct_fields__"):
        return {} if kind is not None else msgspec.UNSET
    ack = {name: ids[name] for name in ("transactionId", "partitionId", "leaseId")} | {"status": "completed"}
    plain = {name: value for name, value in ack.items() if name != "leaseId"}
    known: dict[str, Any] = {
        **ids,
        "items": [{"queue": "other", "payload": 1}],
        "acknowledgments": [ack, plain],
        "operations": [{"type": "ack", **plain, "consumerGroup": ids["group"]}],
        "status": "failed",
        "error": "mine",
        "data": 1,
        "value": 2,
        "enabled": False,
        "name": "s",
        "source_queue": "orders",
        "config_hash": "other",
        "ack": {"transactionId": ids["transactionId"], "status": "completed"},
        "state_ops": [{"type": "set", "key": "k", "value": 1}],
        "push_items": [],
        "options": {},
        "token": 1,
        "seconds": 60,
        "timestamp": "2020-01-01T00:00:00Z",
        "toEnd": True,
        "role": "read-only",
    }
    fields = msgspec.structs.fields(kind)
    return {one.encode_name: known[one.encode_name] for one in fields if one.encode_name in known}


async def test_no_route_tells_one_tenant_of_another_or_changes_anything_of_it(wire: Wire) -> None:
    mine, other = await tenant(wire), await tenant(wire)
    await mine.fill()
    before = await mine.state()
    asked = 0
    for route in ROUTES:
        if route.content_type == EVENTS or route.needs == SIGNATURE:  # the first is endless, the others have no caller
            continue
        for params in values(route, mine.ids):
            path = route.path
            for name, value in params.items():
                path = path.replace(f"{{{name}}}", value)
            answer = await other.ask(route.method, path, body=body(route.body, mine.ids))
            asked += 1
            assert answer.status < 500, (route.method, path, answer)
            assert SECRET.encode() not in answer.body, (route.method, path, answer.body)
            if route.method == "GET" and "{" in route.path and "queue" not in params:
                assert answer.status in (200, 204, 400, 403, 404), (path, answer)
    assert asked > len(ROUTES)
    assert await mine.state() == before, "nothing of it changed"


async def test_ids_of_another_tenant_are_not_there(wire: Wire) -> None:
    mine, other = await tenant(wire), await tenant(wire)
    await mine.fill()
    where, tx = mine.ids["partitionId"], mine.ids["transactionId"]
    for path in (
        f"/api/v1/messages/{where}/{tx}",
        f"/api/v1/messages/{where}/{tx}/result",
        "/api/v1/resources/queues/orders",
        "/admin/queues/orders/dlq",
        f"/admin/queues/orders/dlq/{mine.ids['id']}",
        "/api/v1/schedules/tick",
        "/api/v1/sources/source",
        f"/api/v1/keys/{mine.ids['key']}",
        f"/api/v1/effects/effect?partitionId={where}",
        "/api/v1/spec/versions/1",
    ):
        (await mine.ask("GET", path)).ok()
        (await other.ask("GET", path)).refused(404)
    (await wire.post("/hook", mine.broker.tenant, "Webhook", body={})).ok(202)
    (await wire.post("/hook", other.broker.tenant, "Webhook", body={})).refused(404)
    (await wire.post("/hook", "nobody", "Webhook", body={})).refused(404)
    (await wire.post("/hook", "Webhook", body={})).refused(404)


async def test_the_admin_of_all_names_a_tenant_and_others_only_their_own(wire: Wire) -> None:
    mine, other, all_ = await tenant(wire), await tenant(wire), await operator(wire)
    await mine.fill()
    path = f"/admin/queues?tenant_id={mine.broker.tenant}"
    assert "orders" in {one["name"] for one in (await all_.ask("GET", path)).ok()["queues"]}
    assert [one["name"] for one in (await mine.ask("GET", path)).ok()["queues"]] == ["orders", "typed"]
    (await other.ask("GET", path)).refused(404)
    (await all_.ask("GET", "/admin/queues?tenant_id=nobody")).refused(404)


async def test_what_is_about_the_whole_broker_is_for_the_default_tenant(wire: Wire) -> None:
    mine, all_ = await tenant(wire), await operator(wire)
    for route in ROUTES:
        if route.operator and route.method == "GET" and "{" not in route.path:
            (await mine.ask("GET", route.path)).refused(403, "forbidden")
            assert (await all_.ask("GET", route.path)).status == 200
    (await mine.ask("POST", "/api/v1/pauses", body={"pops": True})).refused(403)
    (await mine.ask("POST", "/api/v1/tenants", body={"name": "another"})).refused(403)


async def test_a_key_of_another_tenant_is_made_with_the_scope_system(wire: Wire) -> None:
    all_, mine = await operator(wire), await tenant(wire)
    body = {"name": "narrow", "scopes": ["push:mine"]}
    for scopes, status in (
        (["keys", "push:mine"], 403),
        (["system", "push:mine"], 403),
        (["keys", "system", "push:mine"], 201),
    ):
        key = (await all_.broker.keys.create(f"k{uuid4().hex}", scopes=scopes)).key
        asked = await Tenant(wire, all_.broker, key).ask(
            "POST", f"/api/v1/tenants/{mine.broker.tenant}/keys", body=body
        )
        assert asked.status == status, asked


async def test_a_tenant_is_made_given_a_key_and_deleted_over_http(wire: Wire) -> None:
    all_, name = await operator(wire), f"t-{uuid4().hex[:8]}"
    (await all_.ask("POST", "/api/v1/tenants", body={"name": name, "quotas": {"queues": 1}})).ok(201)
    (await all_.ask("POST", "/api/v1/tenants", body={"name": name})).refused(409)
    made = (await all_.ask("POST", f"/api/v1/tenants/{name}/keys", body={"name": "first", "role": "admin"})).ok(201)
    mine = Tenant(wire, wire.app.broker.of(name), made["key"])
    own = (await mine.ask("GET", "/api/v1/tenant")).ok()
    assert (own["name"], own["quotas"], own["used"]["queues"]) == (name, {"queues": 1}, 0)
    push = {"items": [{"queue": "q", "payload": 1}]}
    (await mine.ask("POST", "/api/v1/push", body=push)).ok(201)
    (await all_.ask("DELETE", f"/api/v1/tenants/{name}")).refused(409)
    (await mine.ask("DELETE", "/api/v1/resources/queues/q")).ok()
    assert (await all_.ask("DELETE", f"/api/v1/tenants/{name}")).ok()["deleted"]
    (await mine.ask("GET", "/api/v1/tenant")).refused(404)

    async def refused() -> bool:
        return (await mine.ask("GET", "/api/v1/tenant")).status == 401

    await until(refused)  # its keys were deleted with it
    (await all_.ask("GET", f"/api/v1/tenants/{name}")).refused(404)


async def test_quotas_of_things_are_403_and_of_what_passes_429(wire: Wire) -> None:
    mine = await tenant(wire, Quotas(queues=2, partitions=2, groups=1, schedules=0, depth=2, polls=0))
    other = await tenant(wire)

    async def push(queue: str, partition: str, who: Tenant = mine) -> Answer:
        item = {"queue": queue, "partition": partition, "payload": 1}
        return await who.ask("POST", "/api/v1/push", body={"items": [item]})

    (await push("a", "x")).ok(201)
    (await push("b", "x")).ok(201)
    assert "2 queues" in (await push("c", "x")).refused(403, "quota_reached")["error"]
    assert "2 partitions" in (await push("a", "y")).refused(403, "quota_reached")["error"]
    (await mine.ask("POST", "/api/v1/configure", body={"queue": "c"})).refused(403, "quota_reached")
    assert (await mine.ask("GET", "/api/v1/pop/queue/a?consumerGroup=g1")).ok()["messages"]
    (await mine.ask("GET", "/api/v1/pop/queue/a?consumerGroup=g2")).refused(403, "quota_reached")
    tick = {"queue": "a", "everySeconds": 60}
    (await mine.ask("POST", "/api/v1/schedules/tick", body=tick)).refused(403, "quota_reached")
    waiting = await mine.ask("GET", "/api/v1/pop/queue/b?consumerGroup=g1&wait=true&timeout=1000")
    waiting.refused(429, "over_quota")
    mine.broker._scope.quota.forget()
    full = await push("a", "x")
    full.refused(429, "over_quota")
    assert int(full.headers["Retry-After"]) >= 1
    (await push("c", "y", other)).ok(201)


async def test_what_is_stored_beside_messages_has_a_quota_of_bytes_too(wire: Wire) -> None:
    mine = await tenant(wire, Quotas(bytes=20_000))
    item = {"queue": "q", "payload": "x" * 30_000}
    [pushed] = (await mine.ask("POST", "/api/v1/push", body={"items": [item]})).ok(201)
    partition = pushed["partition_id"]
    mine.broker._scope.quota.forget()
    (await mine.ask("POST", "/api/v1/push", body={"items": [item]})).refused(429, "over_quota")
    text = "x" * 15_000
    places = {"partitionId": partition, "transactionId": pushed["transaction_id"]}
    kept = {"partitionId": partition, "value": text}
    for key in ("a", "b"):  # also without space for messages, because their consumers need it
        (await mine.ask("POST", f"/api/v1/effects/{key}", body=kept)).ok()
    mine.broker._scope.quota.forget()
    for method, path, body in (
        ("POST", "/api/v1/effects/c", kept),
        *([("POST", "/api/v1/traces", {**places, "data": {"text": text}})] if INSTALLED else []),
        ("POST", "/api/v1/schedules/tick", {"queue": "q", "everySeconds": 60, "data": text}),
        ("POST", "/api/v1/workers/w", {"app": text, "hostname": "h", "pid": 1, "queues": []}),
        ("POST", "/api/v1/keys", {"name": "n", "scopes": ["push:q"]}),
        ("POST", "/api/v1/spec/apply", {"spec": {"app": "shop", "version": 1, "queues": {}}, "source": text}),
    ):
        refused = (await mine.ask(method, path, body=body)).refused(429, "over_quota")
        assert "the quota is 20000" in refused["error"], path
    [message] = (await mine.ask("GET", "/api/v1/pop/queue/q")).ok()["messages"]
    ack = {"partitionId": partition, "transactionId": message["transactionId"], "leaseId": message["leaseId"]}
    (await mine.ask("POST", "/api/v1/ack", body={**ack, "status": "completed", "result": text})).ok()


async def test_a_tenant_may_send_so_many_requests_a_second(wire: Wire) -> None:
    mine, other = await tenant(wire, Quotas(requests_per_second=3)), await tenant(wire)
    answers = await asyncio.gather(*(mine.ask("GET", "/api/v1/tenant") for _ in range(20)))
    assert {answer.status for answer in answers} == {200, 429}
    (await other.ask("GET", "/api/v1/tenant")).ok()
    answers[-1].refused(429, "over_quota") if answers[-1].status == 429 else answers[-1].ok()


async def test_a_tenant_may_have_so_many_connections(wire: Wire) -> None:
    """Each session is a client with its own connection."""
    mine, other = await tenant(wire, Quotas(connections=2)), await tenant(wire)
    counted = wire.app.connections

    async def ask(session: aiohttp.ClientSession, who: Tenant | None, **more: Any) -> Answer:
        asked = Wire(None, session, wire.base)
        return await asked.ask("POST", "/api/v1/push", body=PUSH, headers=who.headers if who else None, **more)

    async with AsyncExitStack() as stack:
        first, second, third, fourth = [
            await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)))
            for _ in range(4)
        ]
        for session in (first, second, first):
            (await ask(session, mine)).ok(201)
        refused = await ask(third, mine)
        why = refused.refused(429, "over_quota")["error"]
        assert f"tenant {mine.broker.tenant!r} has 2 connections here already, and may have 2" in why
        assert refused.headers["Connection"] == "close", "what is refused holds no connection either"
        assert "Retry-After" in refused.headers
        status = await Wire(None, third, wire.base).get("/api/v1/tenant", headers=mine.headers)
        status.refused(429, "over_quota")
        (await ask(third, other)).ok(201)
        (await ask(fourth, other)).ok(201)
        (await ask(first, mine)).ok(201)
        assert (counted[mine.broker.tenant], counted[other.broker.tenant]) == (2, 2)
        # A connection counts for its last caller, as behind a proxy.
        (await ask(first, other)).ok(201)
        assert (counted[mine.broker.tenant], counted[other.broker.tenant]) == (1, 3)
        (await ask(fourth, mine)).ok(201)
        (await ask(first, mine)).refused(429)
        (await ask(second, None)).refused(401)
        (await ask(first, mine)).ok(201)
    await until(lambda: not counted[mine.broker.tenant] and not counted[other.broker.tenant])


async def test_expressions_of_a_tenant_do_so_much_work_a_second(wire: Wire) -> None:
    """Work over the quota waits, here for more than a minute."""
    mine, other = await tenant(wire, Quotas(expression_work_per_second=100)), await tenant(wire)
    for who in (mine, other):
        await who.broker.specs.apply(encode(KEYED), consent=True)

    async def push(who: Tenant, count: int = 1, queue: str = "keyed", **more: str) -> Answer:
        item = {"queue": queue, "payload": {"who": "ann", "text": "x" * 10_000}, **more}
        return await who.ask("POST", "/api/v1/push", body={"items": [item] * count})

    assert len((await push(mine, 3)).ok(201)) == 3, "what began is never refused half-way"
    refused = await push(mine)
    why = refused.refused(429, "over_quota")["error"]
    assert f"the expressions of tenant {mine.broker.tenant!r}" in why
    assert "100 bytes" in why
    assert int(refused.headers["Retry-After"]) > 1
    (await push(mine, 2)).refused(429, "over_quota")
    transaction = {"operations": [{"type": "push", "items": [{"queue": "keyed", "payload": {"who": "bob"}}]}]}
    (await mine.ask("POST", "/api/v1/transaction", body=transaction)).refused(429, "over_quota")
    hook = ("/hook", mine.broker.tenant)
    later = await wire.post(*hook, "Keyed", body={"id": 1})
    assert "expressions" in later.refused(503, "over_quota")["error"], "senders of webhooks give up on 4xx"
    # Requests without expressions continue, and so do other tenants.
    (await wire.post(*hook, "Plain", body={"id": 1})).ok(202)
    (await push(mine, partition="chosen")).ok(201)
    (await push(mine, queue="plain")).ok(201)
    for _ in range(3):
        (await push(other)).ok(201)
    await mine.broker.tenants.limit(mine.broker.tenant, Quotas())
    (await push(mine)).ok(201)


async def test_metrics_name_the_tenant_of_a_queue(wire: Wire) -> None:
    mine, all_ = await tenant(wire), await operator(wire)
    await mine.broker.push("orders", 1)
    text = (await all_.ask("GET", "/metrics")).body.decode()
    assert f'queue="orders",state="pending",tenant="{mine.broker.tenant}"' in text


@pytest.mark.parametrize("tenants", ["one", "two"])
async def test_a_watched_path_is_answered_for_its_caller(wire: Wire, tenants: str) -> None:
    mine = await tenant(wire)
    await mine.fill()
    who = mine if tenants == "one" else await tenant(wire)
    stream = wire._session.get(f"{wire.base}/api/v1/live?watch=/api/v1/schedules", headers=who.headers)
    async with stream as response:
        async for line in response.content:
            if line.startswith(b"data:"):
                assert (SECRET.encode() in line) == (who is mine)
                break


async def queues_of(who: Tenant) -> list[str]:
    return sorted(queue.name for queue in await who.broker._engine.store.queues.all(who.broker.tenant))


@pytest.mark.parametrize("way", QUEUE_MAKERS)
async def test_no_way_makes_more_queues_than_the_quota(wire: Wire, way: str) -> None:
    mine = await tenant(wire, Quotas(queues=2))
    method, path, body = QUEUE_MAKERS[way]
    await mine.broker.queues.configure("there")
    if way not in ("push of several", "queue with a dead letter queue"):
        await mine.broker.queues.configure("too")
    before = await queues_of(mine)
    (await mine.ask(method, path, body=body)).refused(403, "quota_reached")
    assert await queues_of(mine) == before


async def test_dead_letters_wait_while_their_queue_would_be_one_too_many(wire: Wire) -> None:
    mine = await tenant(wire, Quotas(queues=2))
    broker = mine.broker
    await broker.queues.configure("there", retry_limit=0, dead_letter_queue="dead")
    await broker.push("there", 1)
    await broker.queues.delete("dead")
    await broker.queues.configure("too")
    await broker.ack(await broker.pop("there"), "failed")
    await broker._engine.forwarder.forward()
    assert await queues_of(mine) == ["there", "too"]
    assert len(await broker.dead_letters.page("there")) == 1
