"""The OpenAPI description is complete and readable."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from fairlane.http.openapi import QUEEN, openapi, operation_ids
from fairlane.http.route_table import ROUTES
from fairlane.http.router import JSON
from fairlane.wire.described import AckedMessage, PoppedMessage, PoppedMessages, PushedItem
from tests.http.test_route_scopes import OPEN, rules
from tests.http.wire import Wire
from tests.queen_package import INSTALLED

PUBLIC = {
    *("GET /livez", "GET /readyz", "GET /", "GET /dashboard/{path}", "POST /api/v1/login", "POST /api/v1/logout"),
    *("POST /hook/{name}", "POST /hook/{tenant}/{name}"),
}
"""Paths without a description: liveness, dashboard files, login, and webhooks, which have their signature."""


def references(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {str(value["$ref"])} if "$ref" in value else set()
        return own.union(*map(references, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(references, value), set())
    return set()


def test_every_route_is_described() -> None:
    paths = openapi(ROUTES)["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}


def test_every_operation_has_a_summary_and_a_name_of_its_own() -> None:
    operations = [one for methods in openapi(ROUTES)["paths"].values() for one in methods.values()]
    assert all(one["summary"].strip() for one in operations)
    names = [one["operationId"] for one in operations]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere_and_all_is_json() -> None:
    document = openapi(ROUTES)
    schemas = document["components"]["schemas"]
    assert references(document) <= {f"#/components/schemas/{name}" for name in schemas}
    assert json.loads(json.dumps(document)) == document


def test_every_path_parameter_is_declared() -> None:
    for path, methods in openapi(ROUTES)["paths"].items():
        for operation in methods.values():
            declared = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert declared == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_every_operation_says_what_its_caller_must_show_and_may() -> None:
    document = openapi(ROUTES)
    schemes = document["components"]["securitySchemes"]
    for (method, path), rule in rules().items():
        operation = document["paths"][path][method.lower()]
        if rule.scopes[0] in OPEN:
            assert operation["security"] == [], path
            assert f"{method} {path}" in PUBLIC
            continue
        assert [list(one) for one in operation["security"]] == [[name] for name in schemes], path
        assert operation["x-scope"] == " or ".join(rule.scopes)
        assert f"{method} {path}" not in PUBLIC
        assert "401" in operation["responses"]
    assert schemes["key"]["scheme"] == "bearer"
    assert (schemes["login"]["in"], schemes["login"]["name"]) == ("cookie", "fairlane_session")


def test_operations_have_short_names() -> None:
    names = {(route.method, route.path): id for route, id in zip(ROUTES, operation_ids(ROUTES), strict=True)}
    assert names["POST", "/api/v1/push"] == "push"
    assert names["GET", "/api/v1/pop/queue/{queue}"] == "pop"
    assert names["GET", "/api/v1/pop/queue/{queue}/partition/{partition}"] == "pop_partition"
    assert names["POST", "/api/v1/ack"] == "ack"
    assert names["GET", "/api/v1/resources/queues/{queue}"] == "queues_show"
    assert names["GET", "/api/v1/resources/queues"] == "queues_list"
    assert all(id.isidentifier() for id in names.values())


def test_operations_that_generators_may_leave_out_have_a_tag() -> None:
    operations = openapi(ROUTES)["paths"]
    if INSTALLED:
        assert QUEEN in operations["/streams/v1/cycle"]["post"]["tags"]
    assert QUEEN not in operations["/api/v1/push"]["post"]["tags"]
    assert operations["/admin/queues"]["get"]["tags"] == ["admin"]


def test_every_json_answer_has_a_schema() -> None:
    for path, methods in openapi(ROUTES)["paths"].items():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                if JSON in response.get("content", {}) and path != "/openapi.json":
                    assert response["content"][JSON]["schema"], (path, status)


async def test_answers_that_are_written_as_text_have_the_described_fields(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, maxSize=100, retryDelay=1000)
    body = {"queue": queue, "payload": 1, "type": "t", "headers": {"h": "v"}, "priority": 3, "maxAttempts": 2}
    later = {"queue": queue, "payload": 2, "delayMs": 60_000}
    pushed = (await wire.post("/api/v1/push", body={"items": [body, later]})).ok(201)
    assert [one["status"] for one in pushed] == ["queued", "scheduled"]
    check_fields(pushed, PushedItem)
    popped = (await wire.get("/api/v1/pop/queue", queue)).ok()
    check_fields([popped], PoppedMessages)
    check_fields(popped["messages"], PoppedMessage)
    [message] = popped["messages"]
    where = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    for status in ("failed", "completed"):
        acked = (await wire.post("/api/v1/ack", body={**where, "status": status})).ok()
        check_fields(acked, AckedMessage)


def check_fields(found: list[dict[str, Any]], kind: type[msgspec.Struct]) -> None:
    """Fail for a field that the type does not have, or that it requires and that is missing."""
    fields = msgspec.structs.fields(kind)
    for one in found:
        assert {*one} <= {field.encode_name for field in fields}
        assert {field.encode_name for field in fields if field.required} <= {*one}
