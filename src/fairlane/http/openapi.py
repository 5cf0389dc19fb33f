"""The description of the API, generated from the routes and their types."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

import msgspec

from fairlane.http.auth.authentication import COOKIE
from fairlane.http.router import ADMIN, EVENTS, JSON, Route
from fairlane.model.moment import Moment
from fairlane.model.principal import PUBLIC, SIGNATURE

_REF = "#/components/schemas/{name}"
_TEXT = {"type": "string"}
_EVENT = {  # schema of a server-sent event
    "type": "object",
    "properties": {"event": {"enum": ["snapshot", "change", "problem"]}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
_LOGIN = COOKIE.decode()
QUEEN = "queen"
"""Tag of the operations that exist for Queen's clients only, so that generators can leave them out."""
_ALONE = ("messages",)
_LEASED = {"transactionId": "order-7", "partitionId": "0-1", "leaseId": "1.6e6eb19d-c7c4-4c54-954f-28ee064257b9"}
_EXAMPLES: dict[str, Any] = {
    "push": {"items": [{"queue": "orders", "partition": "customer-7", "payload": {"total": 42}}]},
    "ack": _LEASED,
    "ack_batch": {"acknowledgments": [{**_LEASED, "status": "failed", "error": "no such card"}]},
    "transaction": {
        "operations": [
            {"type": "ack", **_LEASED},
            {"type": "push", "items": [{"queue": "invoices", "payload": {"order": 7}}]},
        ]
    },
    "queues_configure": {"queue": "orders", "options": {"retryLimit": 5, "leaseTime": 60}},
    "dead_letters_replay": {"queue": "orders", "ids": ["0-1-1-0"]},
}
"""Bodies of requests, by operation."""
_PARAMETER = re.compile(r"\{(\w+)\}")


class ErrorBody(msgspec.Struct):
    """An error: a sentence for people, and a code for programs."""

    error: str
    code: str


def openapi(routes: list[Route]) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document."""
    types = [ErrorBody]
    for route in routes:
        types += [kind for kind in (route.body, route.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, schema_hook=_opaque, ref_template=_REF)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route, id in zip(routes, operation_ids(routes), strict=True):
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, id, by_type)
    _open_tuples(components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fairlane", "version": version("fairlane"), "license": {"name": "Apache-2.0"}},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key or a token."},
                "login": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": _LOGIN,
                    "description": "The session of a browser that logged in.",
                },
            },
        },
    }


def _operation(route: Route, id: str, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "tags": [route.tag, *([QUEEN] if route.queen else [])],
        "operationId": id,
        "parameters": _parameters(route),
        "responses": {str(status): _response(status, route, schemas) for status in route.statuses},
    }
    if route.needs not in (PUBLIC, SIGNATURE):
        operation["security"] = [{"key": []}, {"login": []}]
        operation["x-scope"] = route.needs.replace(" ", " or ")
    else:
        operation["security"] = []
    for status in (400, 401, 403, 404, 409, 413, 429, 500, 503):
        operation["responses"].setdefault(str(status), _problem(schemas))
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {JSON: {"schema": schemas[repr(route.body)]}},
        }
        if id in _EXAMPLES:
            operation["requestBody"]["content"][JSON]["example"] = _EXAMPLES[id]
    return operation


def _open_tuples(schema: Any) -> None:
    """Remove `items: false` from tuples, whose length is bounded anyway, because generators expect a schema there."""
    if isinstance(schema, dict):
        if "prefixItems" in schema and schema.get("items") is False:
            del schema["items"]
        for one in schema.values():
            _open_tuples(one)
    elif isinstance(schema, list):
        for one in schema:
            _open_tuples(one)


def operation_ids(routes: list[Route]) -> list[str]:
    """Return a short name for each route: `push`, `queues_show`.

    If routes share an action, the longer path adds the names of its further parameters. Without any, its path is used.
    """
    shortest: dict[str, Route] = {}
    for route in sorted(routes, key=lambda route: len(route.path)):
        shortest.setdefault(_action(route), route)
    ids: list[str] = []
    for route in routes:
        first = shortest[id := _action(route)]
        if route is not first:
            more = [name for name in _PARAMETER.findall(route.path) if name not in _PARAMETER.findall(first.path)]
            id = "_".join([id, *map(_snake, more)]) if more else _snake(f"{route.method.lower()}{route.path}")
        ids.append(id)
    return ids


def _action(route: Route) -> str:
    """Return the family and the verb of a route. Verbs of messages have no family."""
    family, _, verb = (route.name or f"{route.tag}.{route.method.lower()}").rpartition(".")
    if family in _ALONE:
        return _snake(verb)
    return _snake(f"{'queen_' if route.queen else ''}{family}_{'list' if verb.startswith('list_') else verb}")


def _snake(text: str) -> str:
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)).strip("_").lower()


def _parameters(route: Route) -> list[dict[str, Any]]:
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(route.path)
    ]
    if route.path.startswith(ADMIN):
        path.append({"name": "tenant_id", "in": "query", "required": False, "schema": {"type": "string"}})
    if route.query is None:
        return path
    [_], components = msgspec.json.schema_components([route.query], schema_hook=_opaque, ref_template=_REF)
    fields = components[route.query.__name__]
    return path + [
        {"name": name, "in": "query", "required": name in fields.get("required", ()), "schema": schema}
        for name, schema in fields["properties"].items()
    ]


def _response(status: int, route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if status >= 400:
        return _problem(schemas)
    if status == 204:
        return {"description": "Nothing there."}
    content: dict[str, Any] = {}
    if route.content_type == "*/*":
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    elif route.content_type != JSON:
        content[route.content_type.partition(";")[0]] = {"schema": _EVENT if route.content_type == EVENTS else _TEXT}
    if route.content_type == JSON or route.answer is not None:
        content[JSON] = {"schema": schemas[repr(route.answer)] if route.answer is not None else {}}
    return {"description": "Done.", "content": content}


def _problem(schemas: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": "Not done; the body says why.",
        "content": {JSON: {"schema": schemas[repr(ErrorBody)]}},
    }


def _opaque(kind: type) -> dict[str, Any]:
    """Return the schema of types that msgspec cannot describe: payloads are any JSON, moments are text."""
    if kind is msgspec.Raw:
        return {}
    if kind is Moment:
        return {"type": "string", "format": "date-time"}
    raise NotImplementedError(kind)
