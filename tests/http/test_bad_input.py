"""Whatever is sent to a route, it answers with what is wrong, or does it; it never fails on it."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec
import pytest

from fairlane.http.router import Route
from fairlane.http.routes import ROUTES
from tests.http.wire import AWKWARD, Answer, Wire

NAMES = {
    "nul": "a\0b",
    "long": "x" * 300,
    "awkward": AWKWARD,
    "dots": "..",
    "number": "99999999999999999999999",
    "partition": "0-1",
    "far partition": "2147483647-9223372036854775807",
    "blank": " ",
}
BODIES = {
    "nothing": b"",
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "cut off": b'{"queue":',
    "not utf-8": b'{"queue":"\xff"}',
    "surrogate": b'{"queue":"\\ud800","name":"\\ud800"}',
    "deep": b"[" * 100_000,
    "numbers": b'{"queue":1,"items":2,"operations":3,"acknowledgments":4,"enabled":5,"seconds":"x"}',
    "huge number": b'{"seconds":1e999,"position":123456789012345678901234567890}',
    "nul": b'{"queue":"a\\u0000b","name":"\\u0000","consumerGroup":"\\u0000","ids":["\\u0000"]}',
}
WORDS = ("queue", "partition", "consumerGroup", "group", "namespace", "task", "after", "search", "ids", "ns")
QUERY = {
    **{f"{word}={kind}": {word: value} for word in WORDS for kind, value in NAMES.items()},
    "limit": {"limit": "-5"},
    "offset": {"offset": "1e99"},
    "times": {"from": "0000-00-00", "to": "9999-99-99"},
    "far times": {"from": "0001-01-01", "to": "9999-12-31T23:59:59Z"},
    "before": {"before": "9" * 18 + ".0-1." + "9" * 18},
    "flags": {"deleteMetadata": "perhaps", "wait": "x", "includePartitions": "x"},
    "status": {"status": "\0"},
    "lag": {"minLagSeconds": "nan"},
    "endless lag": {"minLagSeconds": "-inf"},
}
_PARAMETER = re.compile(r"\{\w+\}")


def told(answer: Answer, route: Route, what: str) -> None:
    """A good answer, or one that says in a sentence what is wrong."""
    assert answer.status < 500, (route.method, route.path, what, answer.body[:300])
    if answer.status >= 400:
        problem = msgspec.json.decode(answer.body)
        assert problem["error"], (route.path, what)
        assert problem["code"], (route.path, what)


def target(route: Route, name: str) -> str:
    return _PARAMETER.sub(lambda _: quote(name, safe=""), route.path)


def ids(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("kind", NAMES)
async def test_any_name_in_a_path_is_answered(wire: Wire, kind: str) -> None:
    for route in ROUTES:
        if "{" in route.path:
            told(await wire.ask(route.method, target(route, NAMES[kind])), route, kind)


async def test_bytes_that_are_no_text_in_a_path_are_answered(wire: Wire) -> None:
    for route in ROUTES:
        if "{" in route.path:
            path = _PARAMETER.sub("%ff%c0", route.path)
            told(await wire.ask(route.method, path), route, "not utf-8")


async def test_any_query_is_answered(wire: Wire) -> None:
    for route in ROUTES:
        if route.query is not None:
            for what, query in QUERY.items():
                known = {field.encode_name for field in msgspec.structs.fields(route.query)}
                if known & set(query) or route.path == "/api/v1/pop":
                    given = {"queue": "q", "namespace": "n"} | query if known & {"queue", "namespace"} else query
                    answer = await wire.ask(route.method, target(route, "q"), query=given)
                    told(answer, route, what)


@pytest.mark.parametrize("kind", BODIES)
async def test_any_body_is_answered(wire: Wire, kind: str) -> None:
    for route in ROUTES:
        if route.method in ("POST", "PUT"):
            told(await wire.ask(route.method, target(route, "q"), body=BODIES[kind]), route, kind)
