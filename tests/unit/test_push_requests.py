"""Requests of pushes: which take the fast path, and which are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlane.broker.requests import checked_push
from fairlane.errors import InvalidRequest
from fairlane.http.routes.pushes import uniform_items
from fairlane.model.limits import JSON_DEPTH_MAX, MESSAGE_BYTES_MAX
from fairlane.model.message import PushItem
from fairlane.model.names import is_known

for known in ("orders", "lane-1"):
    assert is_known(known)


def item(**options: Any) -> PushItem:
    return PushItem(**{"queue": "orders", "partition": "lane-1", "payload": b"1", **options})


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("id", [None, "a plain id"])
def test_items_with_nothing_but_a_payload_and_an_id_take_the_fast_path(count: int, id: str | None) -> None:
    request = checked_push("default", [item(transaction_id=id) for _ in range(count)])
    assert request.plain
    assert not request.special


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"a": "b"}},
        {"type": "t"},
        {"trace_id": "01956d3c-8a5e-7000-8000-000000000000"},
        {"max_attempts": 3},
        {"transaction_id": "ö"},
    ],
)
def test_other_items_do_not_take_the_fast_path(count: int, options: dict[str, Any]) -> None:
    assert not checked_push("default", [item(**options), *[item()] * (count - 1)]).plain


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("payload", "is_fast"),
    [
        (["x" * 1000], True),
        ([[0]] * (JSON_DEPTH_MAX - 1) + ["x" * 300], True),
        ([[0]] * JSON_DEPTH_MAX + ["x" * 300], False),
        (["x" * 100_000], False),
    ],
)
def test_long_payloads_with_few_brackets_take_the_fast_path_over_http(
    count: int, payload: list[Any], is_fast: bool
) -> None:
    pushed = {"queue": "orders", "partition": "lane-1", "payload": payload}
    body = msgspec.json.encode({"items": [pushed] * count})
    assert (uniform_items(body) is not None) is is_fast


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "options",
    [{"queue": ""}, {"partition": "x" * 1000}, {"transaction_id": ""}, {"payload": b"1" * (MESSAGE_BYTES_MAX + 1)}],
)
def test_a_bad_item_is_refused_by_its_index(count: int, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=f"item {count - 1}: "):
        checked_push("default", [*[item()] * (count - 1), item(**options)])
