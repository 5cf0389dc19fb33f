"""Every route with every kind of caller, admitted or refused. A route without a rule fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from fairlane.http.route_table import ROUTES
from fairlane.model.moment import Moment
from tests.clock import ManualClock
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Wire, serving
from tests.queen_package import INSTALLED

WIDE = {
    "browse": """
        GET /api/v1/scheduled/{queue}
        GET /admin/queues/{queue}/dlq
        GET /admin/queues/{queue}/dlq/{id}
    """,
    "browse push": """
        GET /api/v1/queues/{queue}/results/{transactionId}
    """,
    "configure": """
        PATCH /api/v1/resources/queues/{queue}
        POST /api/v1/queues/{queue}/pause
        POST /api/v1/queues/{queue}/resume
    """,
    "keys": """
        GET /api/v1/keys
        POST /api/v1/keys
        GET /api/v1/keys/{key}
        DELETE /api/v1/keys/{key}
        POST /api/v1/keys/{key}/rotate
        POST /api/v1/tenants/{tenant}/keys
        GET /api/v1/staged/grants
        POST /api/v1/staged/grants
        DELETE /api/v1/staged/grants
    """,
    "known": """
        GET /api/v1/live
        GET /api/v1/whoami
    """,
    "pop": """
        POST /api/v1/ack-and-pop/queue/{queue}/partition/{partition}
        POST /api/v1/ack-and-pop/queue/{queue}
        GET /api/v1/pop/queue/{queue}/partition/{partition}
        GET /api/v1/pop/queue/{queue}
    """,
    "public": """
        GET /livez
        GET /readyz
        POST /api/v1/login
        POST /api/v1/logout
        GET /
        GET /dashboard/{path}
    """,
    "purge": """
        DELETE /api/v1/resources/queues/{queue}
        DELETE /api/v1/queues/{queue}/clear
        DELETE /api/v1/sources/{name}
        DELETE /admin/queues/{queue}/dlq/{id}
        DELETE /admin/queues/{queue}/dlq
    """,
    "push": """
        POST /api/v1/scheduled/{queue}/{partition}/{transactionId}
        DELETE /api/v1/scheduled/{queue}/{partition}/{transactionId}
        POST /api/v1/sources/{name}/lease
        POST /api/v1/sources/{name}/release
    """,
    "push replay": """
        POST /api/v1/queues/{queue}/cancellations/{transactionId}
    """,
    "replay": """
        POST /admin/queues/{queue}/dlq/{id}/replay
        POST /admin/queues/{queue}/dlq/replay
    """,
    "seek": """
        DELETE /api/v1/consumer-groups/{group}
        DELETE /api/v1/consumer-groups/{group}/queues/{queue}
        POST /api/v1/consumer-groups/{group}/subscription
        POST /api/v1/consumer-groups/{group}/queues/{queue}/seek
        POST /api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek
    """,
    "signature": """
        POST /hook/{name}
        POST /hook/{tenant}/{name}
    """,
    "status": """
        GET /api/v1/staged
        GET /api/v1/queues/{queue}/utilisation
        GET /api/v1/resources/queues/{queue}
        GET /api/v1/resources/queues/{queue}/depth
        GET /api/v1/workers
        GET /api/v1/sources
        GET /api/v1/consumer-groups/{group}/queues/{queue}
        GET /api/v1/consumer-groups/{group}/queues/{queue}/seek
        GET /api/v1/queues/{queue}/pauses
        GET /api/v1/explain/{queue}/{partition}
        GET /api/v1/queues/{queue}/lanes
        GET /api/v1/queues/{queue}/lanes/{partition}
        GET /api/v1/status/engine
        GET /api/v1/status/buffers
        GET /api/v1/system
        GET /api/v1/cells
        GET /api/v1/tenant
        GET /health
        GET /metrics
        GET /metrics/prometheus
        GET /api/v1/pauses
        GET /api/v1/operations/stats
    """,
    "status push": """
        GET /api/v1/sources/{name}
    """,
    "system": """
        POST /api/v1/pauses
        POST /api/v1/retention/run
        GET /api/v1/audit
        GET /api/v1/audit/verify
        GET /api/v1/tenants
        POST /api/v1/tenants
        GET /api/v1/tenants/{tenant}
        PUT /api/v1/tenants/{tenant}
        DELETE /api/v1/tenants/{tenant}
    """,
}
"""Routes by the scope that they require, for the queue in their path or for all queues."""
EACH = {
    "browse": """
        GET /api/v1/messages
        GET /api/v1/messages/{partitionId}/{transactionId}
        GET /api/v1/dlq
    """,
    "browse push": """
        GET /api/v1/messages/{partitionId}/{transactionId}/result
    """,
    "configure": """
        POST /api/v1/findings/snooze
        DELETE /api/v1/findings/snooze
        POST /api/v1/configure
        POST /api/v1/schedules/{name}
        DELETE /api/v1/schedules/{name}
        POST /api/v1/schedules/{name}/pause
        POST /api/v1/schedules/{name}/resume
    """,
    "pop": """
        GET /api/v1/pop
        POST /api/v1/ack
        POST /api/v1/ack/batch
        POST /api/v1/lease/{leaseId}/extend
        POST /api/v1/lease/{leaseId}/release
        POST /api/v1/leases/cancelled
        POST /api/v1/leases/progress
        POST /api/v1/workers/{id}
        DELETE /api/v1/workers/{id}
        GET /api/v1/effects/{key}
        POST /api/v1/effects/{key}
    """,
    "purge": """
        DELETE /api/v1/messages/{partitionId}/{transactionId}
        DELETE /api/v1/dlq
        POST /api/v1/operations/discard
        POST /api/v1/operations/{operationId}/discard
    """,
    "push": """
        DELETE /api/v1/fan-ins/{id}
        POST /api/v1/push
        POST /api/v1/hooks/{name}/test
        POST /api/v1/schedules/{name}/run
        POST /api/v1/sources/{name}/commit
    """,
    "push pop": """
        POST /api/v1/transaction
    """,
    "push replay": """
        POST /api/v1/messages/{partitionId}/{transactionId}/cancel
    """,
    "replay": """
        POST /api/v1/messages/{partitionId}/{transactionId}/retry
        POST /api/v1/messages/{partitionId}/{transactionId}/dlq
        POST /api/v1/dlq/replay
        POST /api/v1/operations/retry
        POST /api/v1/operations/{operationId}/retry
    """,
    "spec": """
        POST /api/v1/spec/plan
        POST /api/v1/spec/apply
    """,
    "spec status pop": """
        GET /api/v1/spec
    """,
    "spec status": """
        GET /api/v1/spec/versions
        GET /api/v1/spec/versions/{version}
        GET /api/v1/spec/export
    """,
    "status": """
        GET /api/v1/retention/history
        GET /api/v1/hooks
        GET /api/v1/leases
        GET /api/v1/resources/queues
        GET /api/v1/resources/partitions
        GET /api/v1/resources/namespaces
        GET /api/v1/resources/tasks
        GET /api/v1/resources/overview
        GET /api/v1/fan-ins
        GET /api/v1/fan-ins/{id}
        GET /api/v1/schedules
        GET /api/v1/schedules/{name}
        GET /api/v1/dlq/errors
        GET /admin/queues
        GET /api/v1/consumer-groups
        GET /api/v1/consumer-groups/lagging
        GET /api/v1/resources/groups
        GET /api/v1/consumer-groups/{group}
        GET /api/v1/history
        GET /api/v1/findings
        GET /api/v1/operations
        GET /openapi.json
        GET /docs
        GET /docs/style.css
        GET /docs/script.js
    """,
    "status browse": """
        GET /api/v1/search
    """,
    "status push pop": """
        GET /api/v1/operations/{operationId}
    """,
}
"""Routes that check each queue: a scope for some queue gives access, and more scopes show more."""
OPERATOR = """
    GET /api/v1/cells
    GET /api/v1/tenants
    POST /api/v1/tenants
    GET /api/v1/tenants/{tenant}
    PUT /api/v1/tenants/{tenant}
    DELETE /api/v1/tenants/{tenant}
    POST /api/v1/tenants/{tenant}/keys
    GET /api/v1/status/engine
    GET /api/v1/status/buffers
    GET /api/v1/system
    GET /metrics
    GET /metrics/prometheus
    POST /api/v1/pauses
    POST /api/v1/retention/run
    GET /api/v1/audit/verify
"""
"""Routes about the whole broker, for callers of the default tenant."""
SOME = {"id": "0-1", "partitionId": "0-1", "leaseId": "1.x", "version": "1", "path": "js/app.js"}
OPEN = ("public", "signature")


class Rule(NamedTuple):
    scopes: tuple[str, ...]
    each: bool
    operator: bool = False


def rules() -> dict[tuple[str, str], Rule]:
    queen: Any = (
        import_module("tests.queen.route_scopes") if INSTALLED else SimpleNamespace(WIDE={}, EACH={}, OPERATOR="")
    )
    operators = {line.strip() for line in (OPERATOR + queen.OPERATOR).splitlines()}

    def read(table: dict[str, str], each: bool) -> Iterator[tuple[tuple[str, str], Rule]]:
        for scopes, lines in table.items():
            for line in lines.split("\n"):
                if line.strip():
                    method, path = line.split()
                    operator = f"{method} {path}" in operators
                    yield (method, path), Rule(tuple(scopes.split()), each, operator)

    return dict([*read(WIDE, False), *read(EACH, True), *read(queen.WIDE, False), *read(queen.EACH, True)])


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    assert {(route.method, route.path) for route in ROUTES} == set(rules())


class Known(NamedTuple):
    """A caller with its header and scopes. None stands for an anonymous one."""

    header: dict[str, str]
    scopes: frozenset[str] | None
    narrow: bool = False
    other_tenant: bool = False


QUEUES = frozenset({"push", "pop", "create", "configure", "browse", "status", "seek", "replay", "purge"})

EVERYTHING = QUEUES | {"spec", "system", "keys"}


class World(NamedTuple):
    wire: Wire
    callers: dict[str, Known]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A broker with a key of each kind."""
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    clock = ManualClock()
    async with serving(await backend.open(clock)) as wire:
        broker = wire.app.broker
        await broker.queues.configure("orders.eu")
        keys = broker.keys

        async def bearer(
            name: str, *scopes: str, role: str | None = None, seconds: int | None = None
        ) -> dict[str, str]:
            expires_at = None if seconds is None else Moment(clock() + seconds * 1_000_000)
            made = await keys.create(name, role=role, scopes=scopes, expires_at=expires_at)
            return {"authorization": f"Bearer {made.key}"}

        other = await broker.of("other").keys.create("root", role="admin")
        callers = {
            "admin": Known(await bearer("a", role="admin"), EVERYTHING),
            "read-write": Known(await bearer("rw", role="read-write"), QUEUES),
            "read-only": Known(await bearer("ro", role="read-only"), frozenset({"browse", "status"})),
            "narrow": Known(await bearer("n", "read-write:orders.*", "spec:shop"), QUEUES | {"spec"}, narrow=True),
            "of another tenant": Known({"authorization": f"Bearer {other.key}"}, EVERYTHING, other_tenant=True),
            "expired": Known(await bearer("e", role="admin", seconds=10), None),
            "revoked": Known(await bearer("r", role="admin"), None),
            "nobody": Known({}, None),
            "mistyped": Known({"authorization": "Bearer fl_" + "0" * 72}, None),
            "of another scheme": Known({"authorization": "Basic YTpi"}, None),
        }
        await keys.revoke("r")
        clock.advance(11)
        yield World(wire, callers)


def expected(rule: Rule, caller: Known, queue: str | None) -> int:
    """Return 401, 403, or 0 for an admitted caller."""
    if rule.scopes[0] in OPEN:
        return 0
    if caller.scopes is None:
        return 401
    if rule.operator and caller.other_tenant:
        return 403
    if rule.scopes == ("known",):
        return 0
    if not caller.scopes.intersection(rule.scopes):
        return 403
    if not caller.narrow or rule.each:
        return 0
    return 0 if queue is not None and queue.startswith("orders.") else 403


@pytest.mark.parametrize(
    "caller",
    [
        "admin",
        "read-write",
        "read-only",
        "of another tenant",
        "narrow",
        "expired",
        "revoked",
        "nobody",
        "mistyped",
        "of another scheme",
    ],
)
@pytest.mark.parametrize("queue", ["orders.eu", "bills"])
async def test_a_route_lets_in_whom_its_rule_allows_and_nobody_else(world: World, caller: str, queue: str) -> None:
    known, wrong = world.callers[caller], []
    for (method, path), rule in rules().items():
        if path in ("/api/v1/live", "/api/v1/retention/run"):
            continue
        target, has_queue = path, "{queue}" in path
        for part in [part for part in path.split("/") if part.startswith("{")]:
            target = target.replace(part, queue if part == "{queue}" else SOME.get(part[1:-1], "nothing"))
        # A body that no endpoint accepts, so that admitted callers change nothing.
        body = b"[]" if method in ("POST", "PATCH") else msgspec.UNSET
        answer = await world.wire.ask(method, target, body=body, headers=known.header)
        want = expected(rule, known, queue if has_queue else None)
        met = answer.status if answer.status in (401, 403) and not target.startswith("/hook/") else 0
        # Refusals by the endpoint itself are tested elsewhere.
        if met != want and not (known.narrow and rule.each and met == 403 and want == 0):
            wrong.append(f"{method} {target}: {answer.status}, not {want or 'let in'}: {answer.body[:200]!r}")
    assert wrong == []


async def test_a_refusal_says_what_to_do(world: World) -> None:
    wire, callers = world
    refused = await wire.ask("GET", "/api/v1/whoami")
    assert "Authorization: Bearer" in refused.refused(401, "unauthenticated")["error"]
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    mistyped = await wire.ask("GET", "/api/v1/whoami", headers=callers["mistyped"].header)
    assert "mistyped" in mistyped.refused(401)["error"]
    unknown = await wire.ask("GET", "/api/v1/whoami", headers=callers["revoked"].header)
    assert "revoked or expired" in unknown.refused(401)["error"]
    forbidden = await wire.ask("DELETE", "/api/v1/queues/bills/clear", headers=callers["narrow"].header)
    assert "purge:bills" in forbidden.refused(403, "forbidden")["error"]


async def test_the_body_of_a_stranger_is_not_read(world: World) -> None:
    used = world.wire.app.broker.process.budget.used
    answer = await world.wire.ask("POST", "/api/v1/push", body=b"x" * 1_000_000)
    answer.refused(401)
    assert world.wire.app.broker.process.budget.used == used


async def test_a_key_may_come_bare_or_with_any_case_of_bearer(world: World) -> None:
    key = world.callers["admin"].header["authorization"].removeprefix("Bearer ")
    for header in (key, f"bearer {key}", f"BEARER  {key}"):
        found = (await world.wire.ask("GET", "/api/v1/whoami", headers={"authorization": header})).ok()
        assert (found["name"], found["open"]) == ("key:a", False)


LOOKALIKES = [
    *("/livez/", "//livez", "/./livez", "/LIVEZ", "/livez%2f", "/livez%00", "/livez.json", "/livez/api/v1/status"),
    *(
        "/livez/../api/v1/status",
        "/livez/..%2fapi/v1/status",
        "/livez%2f..%2fapi%2fv1%2fstatus",
        "/livez;/api/v1/status",
    ),
    *(
        "//api/v1/status",
        "/api//v1/status",
        "/api/v1/status/",
        "/API/V1/STATUS",
        "/%61pi/v1/status",
        "/api/v1/%73tatus",
    ),
    *("/./api/v1/status", "/api/v1/../v1/status", "/api/v1/status;x", "/api/v1/status%20", "/api/v1/status%2f"),
    *("/dashboard/../api/v1/status", "/dashboard/%2e%2e/api/v1/status", "/dashboard/..%2fapi%2fv1%2fstatus"),
    *("/hook/../api/v1/status", "/hook/..%2fapi/v1/status", "/api/v1/login/../status", "/api/v1/login%2f..%2fstatus"),
    *("/api/v1/status?/livez", "/api/v1/status?path=/livez", "/api/v1/status#/livez", "http://127.0.0.1/api/v1/status"),
]


@pytest.mark.parametrize("path", LOOKALIKES)
async def test_no_other_spelling_of_a_path_leads_past_its_rule(world: World, path: str) -> None:
    """A path is public only if it matches exactly. A matching beginning or end is not enough."""
    host = world.wire.base.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert int(head.split()[1]) in (400, 401, 403, 404, 405), (head, body)
    assert b'"error":' in body
