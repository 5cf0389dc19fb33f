"""Every route answers any input with a result or an error, and never fails."""

from __future__ import annotations

import asyncio
import gzip
import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from fairlane.http.route_table import ROUTES
from fairlane.http.router import Route
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
    "longest": "x" * 255,
    "one too long": "x" * 256,
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "right to left": "\u05d0\u202e\u05d1",
    "line break": "a\r\nx-injected: 1",
    "traversal": "../../etc/passwd",
    "matrix": "..;/",
    "encoded twice": "%2f%00",
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
    "deep object": b'{"a":' * 100_000,
    "deep and whole": b'{"items":[{"queue":"q","payload":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
    "comment": b'{"queue":"q" /* why */}',
    "trailing comma": b'{"queue":"q",}',
    "byte order mark": b'\xef\xbb\xbf{"queue":"q"}',
    "overlong utf-8": b'{"queue":"\xc0\xaf"}',
    "not a number": b'{"seconds":NaN,"position":Infinity}',
    "two values": b"{}{}",
    "multipart": b'--x\r\ncontent-disposition: form-data; name="queue"\r\n\r\nq\r\n--x--\r\n',
    "gzip": gzip.compress(b"0" * 10_000_000),
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
    "first times": {"from": "0000-01-01T00:00:00Z", "to": "9999-12-31T23:59:60Z"},
    "status": {"status": "\0"},
    "lag": {"minLagSeconds": "nan"},
    "endless lag": {"minLagSeconds": "-inf"},
}
_PARAMETER = re.compile(r"\{\w+\}")
# The input of each route. A new method with a body is among the last.
NAMED = [route for route in ROUTES if "{" in route.path]
ASKED = [route for route in ROUTES if route.query is not None]
TOLD = [route for route in ROUTES if route.body is not None or route.method not in ("GET", "HEAD", "DELETE")]


def _deep(levels: int) -> msgspec.Raw:
    return msgspec.Raw(b"[" * levels + b"]" * levels)


def told(answer: Answer, route: Route, what: str) -> None:
    """Check that the answer is good, or that its error says in a sentence what is wrong."""
    assert answer.status < 500, (route.method, route.path, what, answer.body[:300])
    if answer.status >= 400:
        problem = msgspec.json.decode(answer.body)
        assert problem["error"], (route.path, what)
        assert problem["code"], (route.path, what)


def target(route: Route, name: str) -> str:
    return _PARAMETER.sub(lambda _: quote(name, safe=""), route.path)


def ids(route: Route) -> str:
    return f"{route.method} {route.path}"


async def test_every_route_is_held_to_the_corpus(wire: Wire) -> None:
    held = {ids(route) for route in (*NAMED, *ASKED, *TOLD)}
    others = [route for route in wire.app.router.routes if ids(route) not in held]
    assert {route.method for route in others} <= {"GET"}, "what takes nothing only tells"
    for route in others:  # and gets an answer all the same
        answer = await wire.ask("GET", route.path, query={"limit": "-5", "\0": "\ud7ff", "x" * 300: "x"})
        told(answer, route, "a query that it does not know")


@pytest.mark.parametrize("kind", NAMES)
async def test_any_name_in_a_path_is_answered(wire: Wire, kind: str) -> None:
    for route in NAMED:
        told(await wire.ask(route.method, target(route, NAMES[kind])), route, kind)


async def test_bytes_that_are_no_text_in_a_path_are_answered(wire: Wire) -> None:
    for route in NAMED:
        path = _PARAMETER.sub("%ff%c0", route.path)
        told(await wire.ask(route.method, path), route, "not utf-8")


async def test_any_query_is_answered(wire: Wire) -> None:
    for route in ASKED:
        known = {field.encode_name for field in msgspec.structs.fields(route.query)}
        for what, query in QUERY.items():
            if known & set(query) or route.path == "/api/v1/pop":
                given = {"queue": "q", "namespace": "n"} | query if known & {"queue", "namespace"} else query
                answer = await wire.ask(route.method, target(route, "q"), query=given)
                told(answer, route, what)


async def test_a_nul_in_any_parameter_of_a_query_is_refused(wire: Wire) -> None:
    for route in ASKED:
        for field in msgspec.structs.fields(route.query):
            if field.encode_name == "watch":  # a list of paths, each answered on its own in the stream
                continue
            answer = await wire.ask(route.method, target(route, "q"), query={field.encode_name: "\0"})
            assert answer.status in (400, 404), (route.path, field.encode_name, answer.body[:300])
            told(answer, route, field.encode_name)


@pytest.mark.parametrize("kind", BODIES)
async def test_any_body_is_answered(wire: Wire, kind: str) -> None:
    for route in TOLD:
        told(await wire.ask(route.method, target(route, "q"), body=BODIES[kind]), route, kind)


WRONG = [None, True, -1, 2**70, 1.5, "", "x", "\0", [], [1], {}, {"a": 1}]


async def test_any_value_in_any_field_of_a_body_is_answered(wire: Wire) -> None:
    for route in ROUTES:
        if isinstance(route.body, type) and issubclass(route.body, msgspec.Struct):
            for field in msgspec.structs.fields(route.body):
                for value in WRONG:
                    body = {field.encode_name: value}
                    told(await wire.ask(route.method, target(route, "q"), body=body), route, repr(body))
                if (
                    "maintenance" in route.path or route.path == "/api/v1/pauses"
                ):  # other tests use this store and must not find pauses
                    (await wire.ask(route.method, target(route, "q"), body={field.encode_name: False})).ok()


PAYLOADS = {
    "names twice": b'{"a":1,"a":2}',
    "blanks": b'{ "a" :\t1 }',
    "order of names": b'{"b":1,"a":2}',
    "huge number": b"1e400",
    "long number": b"1" * 5000,
    "small number": b"-0.0",
    "nul": b'"\\u0000"',
    "lone surrogate": b'"\\ud800"',
    "decomposed": '"e\u0301"'.encode(),
    "emoji": '"\U0001f680"'.encode(),
    "escaped slash": b'"\\/"',
    "null": b"null",
    "deepest": b"[" * 128 + b"]" * 128,
    "too deep": b"[" * 129 + b"]" * 129,
}


@pytest.mark.parametrize("kind", PAYLOADS)
async def test_a_payload_comes_back_byte_by_byte_or_is_refused(wire: Wire, kind: str) -> None:
    queue = wire.name()
    item = {"queue": queue, "payload": msgspec.Raw(PAYLOADS[kind])}
    answer = await wire.post("/api/v1/push", body={"items": [item]})
    if answer.status == 201:
        popped = await wire.get("/api/v1/pop", "queue", queue)
        assert b'"data":%b,"createdAt"' % PAYLOADS[kind] in popped.body
    else:
        answer.refused(400)
        assert (await wire.get("/api/v1/pop", "queue", queue)).status == 204


@pytest.mark.parametrize(
    "bad",
    [
        {"queue": ""},
        {"partition": "x" * 256},
        {"transactionId": ""},
        {"traceId": "no uuid"},
        {"payload": _deep(129)},
        {"priority": 10},
        {"priority": "9"},
    ],
    ids=["queue", "partition", "id", "trace", "depth", "priority", "priority type"],
)
async def test_one_bad_item_of_a_hundred_refuses_its_request_alone_and_is_named(wire: Wire, bad: Any) -> None:
    queue = wire.name()
    items: list[Any] = [{"queue": queue, "payload": number} for number in range(100)]
    items[57] |= bad
    beside = wire.post("/api/v1/push", body={"items": [{"queue": queue, "payload": "beside"}]})
    refused, stored = await asyncio.gather(wire.post("/api/v1/push", body={"items": items}), beside)
    assert "items[57]" in refused.refused(400)["error"]
    stored.ok(201)
    assert [message["data"] for message in await wire.pop(queue)] == ["beside"]


async def test_a_lease_of_another_group_finishes_nothing(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    [message] = await wire.pop(queue, consumerGroup="a")
    [other] = await wire.pop(queue, consumerGroup="b")
    [outcome] = await wire.ack([message | {"leaseId": other["leaseId"]}])
    assert not outcome["success"]
    assert [one["success"] for one in await wire.ack([message])] == [True]


async def test_a_push_that_names_thousands_of_new_queues_is_refused_in_a_sentence(wire: Wire) -> None:
    base = wire.name()
    body = {"items": [{"queue": f"{base}-{number}", "payload": 1} for number in range(10_000)]}
    refused = (await wire.post("/api/v1/push", body=body)).refused(400, "invalid_request")
    assert "create at most 1000 queues and partitions" in refused["error"]
    assert "create 10000" in refused["error"]
    body["items"] = body["items"][:1000]
    assert {one["status"] for one in (await wire.post("/api/v1/push", body=body)).ok(201)} == {"queued"}
