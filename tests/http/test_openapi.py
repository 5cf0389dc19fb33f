"""The OpenAPI description is complete and readable."""

from __future__ import annotations

import json

from fairlane.http.openapi import openapi
from fairlane.http.route_table import ROUTES
from tests.http.test_route_scopes import OPEN, rules

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
