"""A message that does not match the type of its queue is refused, with the path of the mismatch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.errors import ExpressionFailed, InvalidRequest, PayloadInvalid
from fairlane.spec.compiled_queue import CompiledQueue, MappedCommand, preview
from fairlane.spec.types import compile_input_validator, compile_validator
from tests.spec.samples import INCIDENTS, compiled

TYPED = """app A { queue Q { message_type {
  payload: { incident: { id: string  urgency: string  class: int? } }
  at: time?  id: uuid?  raw: bytes?  counts: list<int>?  level: enum("low", "high")?  any: json?  by: map<string, int>?
  ratio: float?  ok: bool?  parts: list<{ n: int }>?
} } }"""
GOOD: dict[str, Any] = {"payload": {"incident": {"id": "P1", "urgency": "high"}}}


@cache
def validators() -> tuple[Callable[[bytes], None], Callable[[dict[str, Any]], None]]:
    record = compiled(TYPED).spec.queues["Q"].message_type
    assert record is not None
    return compile_validator(record), compile_input_validator(record)


def refusal(validate: Callable[[Any], None], value: object) -> PayloadInvalid | None:
    try:
        validate(value)
    except PayloadInvalid as error:
        return error
    return None


def both(message: object) -> list[PayloadInvalid | None]:
    """Return the error for a message, which must be the same for its bytes and for its value."""
    of_bytes, of_value = validators()
    return [refusal(of_bytes, json.dumps(message).encode()), refusal(of_value, message)]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"strange": 1},
        {"at": "2026-01-31T12:00:00Z"},
        {"at": "2026-01-31T12:00:00.5+02:00"},
        {"id": "019a8b1c-1111-7222-8333-0123456789ab"},
        {"raw": "aGVsbG8="},
        {"counts": []},
        {"counts": [1, -2]},
        {"level": "low"},
        {"any": {"deep": [1, None, {"x": "y"}]}},
        {"any": None},
        {"by": {"a": 1}},
        {"ratio": 1},
        {"ok": False},
        {"parts": [{"n": 1, "m": 2}]},
        dict.fromkeys(("at", "id", "raw", "counts", "level", "by", "ratio", "ok", "parts")),
    ],
)
def test_what_fits_is_let_through(more: dict[str, Any]) -> None:
    assert both(GOOD | more) == [None, None]


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ({"payload": {"incident": {"id": "P1", "urgency": 1}}}, "payload.incident.urgency: expected string, got int"),
        ({"payload": {"incident": {"id": "P1"}}}, "payload.incident.urgency: is missing"),
        ({}, "payload: is missing"),
        ({"payload": {"incident": None}}, "payload.incident: expected map, got null"),
        (
            {"payload": {"incident": {"id": "1", "urgency": "", "class": "x"}}},
            "payload.incident.class: expected int or null",
        ),
        (GOOD | {"at": "2026-01-31T12:00:00"}, "at: expected a time with its offset from UTC"),
        (GOOD | {"at": "yesterday"}, "at: expected a time like"),
        (GOOD | {"at": 5}, "at: expected time or null, got int"),
        (GOOD | {"id": "x"}, "id: expected a uuid"),
        (GOOD | {"raw": "*"}, "raw: expected bytes in base64"),
        (GOOD | {"counts": [1, "2"]}, "counts[1]: expected int, got string"),
        (GOOD | {"counts": [True]}, "counts[0]: expected int, got bool"),
        (GOOD | {"counts": 1}, "counts: expected list or null, got int"),
        (GOOD | {"level": "middle"}, "level: invalid enum value 'middle'"),
        (GOOD | {"by": {"a": 1, "b": "2"}}, "by[...]: expected int, got string"),
        (GOOD | {"ratio": "1"}, "ratio: expected float or null, got string"),
        (GOOD | {"ok": 1}, "ok: expected bool or null, got int"),
        (GOOD | {"parts": [{"n": 1}, {}]}, "parts[1].n: is missing"),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(message: dict[str, Any], refused: str) -> None:
    for told in both(message):
        assert str(told).startswith(refused)


@pytest.mark.parametrize("payload", [b"", b"[]", b"3", b"{", b"\xff", b"{'a': 1}", b'{"any":' + b"[" * 100_000, b"NaN"])
def test_what_is_no_object_at_all_is_refused_and_no_error(payload: bytes) -> None:
    with pytest.raises(PayloadInvalid):
        validators()[0](payload)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["payload", "incident", "id", "urgency", "at", "any"]), inner, max_size=4)
        ),
    )
)
def test_bytes_and_values_are_judged_alike(message: object) -> None:
    as_bytes, as_value = both(message)
    assert str(as_bytes) == str(as_value)


def test_a_message_becomes_a_command_with_a_checked_input() -> None:
    spec = compiled(
        INCIDENTS.replace('? "critical" : "high"', "? payload.incident.level : payload.incident.level")
    ).spec
    queue = CompiledQueue(spec, "WebhookIngress")
    incident = {"id": 7, "title": "x", "urgency": "high", "level": "high"}
    assert queue.partition({"payload": {"incident": incident}}) == "7"
    with pytest.raises(PayloadInvalid, match="external_id: expected string, got int"):
        queue.command({"payload": {"incident": incident}})
    incident |= {"id": "P1"}
    assert queue.command({"payload": {"incident": incident}}) == MappedCommand(
        "Incident.CreateIncident", {"title": "x", "severity": "high", "source": "pagerduty", "external_id": "P1"}
    )
    incident |= {"level": "none"}
    with pytest.raises(PayloadInvalid, match="severity: invalid enum value 'none'"):
        queue.command({"payload": {"incident": incident}})


@pytest.mark.parametrize(
    ("key", "refused"), [("", "non-empty"), (True, "non-empty"), (None, "non-empty"), ("x" * 256, "at most 255")]
)
def test_a_key_that_names_no_partition_is_refused(key: object, refused: str) -> None:
    queue = CompiledQueue(compiled("app A { queue Q { key: k } }").spec, "Q")
    with pytest.raises(InvalidRequest, match=refused):
        queue.partition({"k": key})


def test_a_queue_without_type_key_and_mapping_takes_anything() -> None:
    spec = compiled("app A { queue Q {} }").spec
    found = preview(spec, "Q", b'{"x": 1}')
    assert (found.partition, found.command) == ("Default", None)
    with pytest.raises(ExpressionFailed, match="JSON object"):
        preview(spec, "Q", b"[1]")


def test_a_validator_takes_no_more_than_a_fiftieth_of_a_millisecond() -> None:
    validate, _ = validators()
    payload = json.dumps(GOOD | {"any": [{"n": n, "text": "x" * 20} for n in range(50)]}).encode()
    began = time.process_time()
    for _ in range(10_000):
        validate(payload)
    assert (time.process_time() - began) / 10_000 < 1 / 50_000
