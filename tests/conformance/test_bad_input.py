"""Bad input raises an error of Fairlane that says what is wrong. Nothing is stored and nothing leaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.transact import AckStep
from fairlane.errors import FairlaneError, InvalidRequest, NotFound
from fairlane.model.group import Seek, Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, JSON_DEPTH_MAX, LEASE_SECONDS_MAX, MESSAGE_BYTES_MAX
from fairlane.model.message import Message, PushItem
from fairlane.model.outcome import AckItem
from fairlane.store.contract.values import DeadFilter
from tests.conformance.harness import Harness

BAD_NAMES: dict[str, Any] = {
    "none": None,
    "number": 7,
    "bytes": b"name",
    "list": ["name"],
    "empty": "",
    "256_characters": "x" * 256,
    "nul": "a\0b",
    "lone_surrogate": "a\ud800b",
}
BAD_COUNTS: dict[str, Any] = {
    "none_at_all": "",
    "text": "1",
    "fraction": 1.5,
    "boolean": True,
    "zero": 0,
    "negative": -1,
    "huge": 2**63,
    "list": [1],
}
BAD_PAYLOADS: dict[str, bytes] = {
    "nothing": b"",
    "space": b" ",
    "word": b"nope",
    "half": b'{"a":',
    "two_values": b"1 2",
    "comma": b"1,2",
    "closing": b"1}",
    "not_utf8": b'"\xff"',
    "lone_surrogate": rb'"\ud800"',
    "surrogate_bytes": b'"\xed\xa0\x80"',
    "nul_byte": b'"\x00"',
    "bom": b"\xef\xbb\xbf1",
    "too_deep": b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1),
    "far_too_deep": b"[" * 100_000 + b"]" * 100_000,
    "open_brackets": b"[" * 100_000,
    # A check that searches for the end of a string from every quote would take hours.
    "escapes_without_end": b"[" * 200 + b'"' + rb"\"" * 10_000,
    "quotes": b"[" * 200 + b'"' * 100_001,
    "too_long": b'"' + b"x" * MESSAGE_BYTES_MAX + b'"',
}

Call = Callable[[Broker, str, Message[Any], Any], Awaitable[Any]]


async def push_in_transaction(broker: Broker, queue: str, **words: Any) -> None:
    async with broker.transaction() as transaction:
        transaction.push(queue, 1)
        transaction.push(queue, 2, **words)


def item(delivery: Message[Any], **words: Any) -> AckItem:
    values = {"transaction_id": delivery.transaction_id, "partition": delivery.partition_id, "lease": delivery.lease}
    return AckItem(**values | words)


def push_items(queue: Any, **words: Any) -> list[PushItem]:
    good = PushItem(queue=queue if isinstance(queue, str) and queue else "q", payload=b"1")
    return [good, PushItem(**{"queue": queue, "payload": b"1"} | words)]


BY_NAME: dict[str, Call] = {
    "push_queue": lambda b, q, d, bad: b.push(bad, 1),
    "push_partition": lambda b, q, d, bad: b.push(q, 1, partition=bad),
    "push_transaction_id": lambda b, q, d, bad: b.push(q, 1, transaction_id=bad or ""),
    "push_type": lambda b, q, d, bad: b.push(q, 1, type=bad or ""),
    "push_header": lambda b, q, d, bad: b.push(q, 1, headers={bad if bad.__hash__ else "": "v"}),
    "push_many_queue": lambda b, q, d, bad: b.push_many([PushItem(queue=bad, payload=b"1")]),
    "push_many_partition": lambda b, q, d, bad: b.push_many(push_items(q, partition=bad)),
    "push_many_id": lambda b, q, d, bad: b.push_many(push_items(q, transaction_id=bad or "")),
    "transact_push": lambda b, q, d, bad: push_in_transaction(b, q, partition=bad),
    "pop_queue": lambda b, q, d, bad: b.pop(bad),
    "pop_group": lambda b, q, d, bad: b.pop(q, group=bad),
    "pop_partition": lambda b, q, d, bad: b.pop(q, partition=bad or ""),
    "ack_group": lambda b, q, d, bad: b.ack_many([item(d)], group=bad),
    "ack_id": lambda b, q, d, bad: b.ack_many([item(d), item(d, transaction_id=bad)]),
    "configure_queue": lambda b, q, d, bad: b.queues.configure(bad),
    "delete_queue": lambda b, q, d, bad: b.queues.delete(bad),
    "depth": lambda b, q, d, bad: b.queues.depth(bad),
    "groups": lambda b, q, d, bad: b.groups.all(bad),
    "lanes_queue": lambda b, q, d, bad: b.groups.lanes(bad, "g"),
    "lanes_group": lambda b, q, d, bad: b.groups.lanes(q, bad),
    "seek_queue": lambda b, q, d, bad: b.groups.seek(bad, "g", Seek("end")),
    "seek_group": lambda b, q, d, bad: b.groups.seek(q, bad, Seek("end")),
    "seek_partition": lambda b, q, d, bad: b.groups.seek(q, d.group, Seek("end"), partition=bad or ""),
    "delete_group": lambda b, q, d, bad: b.groups.delete(q, bad),
    "dead_letters": lambda b, q, d, bad: b.dead_letters.page(bad),
    "dead_letters_group": lambda b, q, d, bad: b.dead_letters.page(q, DeadFilter(group=bad or "")),
    "replay": lambda b, q, d, bad: b.dead_letters.replay(bad),
    "purge": lambda b, q, d, bad: b.dead_letters.purge(bad),
}
BY_COUNT: dict[str, Call] = {
    "pop_batch": lambda b, q, d, bad: b.pop(q, batch=bad),
    "pop_partitions": lambda b, q, d, bad: b.pop(q, partitions=bad),
    "pop_lease_seconds": lambda b, q, d, bad: b.pop(q, lease_seconds=bad),
    "renew_seconds": lambda b, q, d, bad: b.renew(d.lease, bad),
    "configure_lease_seconds": lambda b, q, d, bad: b.queues.configure(q, lease_seconds=bad),
    "dead_letters_limit": lambda b, q, d, bad: b.dead_letters.page(q, limit=bad),
    "lanes_limit": lambda b, q, d, bad: b.groups.lanes(q, d.group, limit=bad),
}
OTHERS: dict[str, Call] = {
    "push_header_value": lambda b, q, d, bad: b.push(q, 1, headers={"h": 5}),  # type: ignore[dict-item]
    "push_headers_list": lambda b, q, d, bad: b.push(q, 1, headers=["h"]),  # type: ignore[arg-type]
    "push_too_many_headers": lambda b, q, d, bad: b.push(q, 1, headers={str(n): "" for n in range(65)}),
    "push_long_headers": lambda b, q, d, bad: b.push(q, 1, headers={"h": "x" * 5000}),
    "push_header_nul": lambda b, q, d, bad: b.push(q, 1, headers={"h": "\0"}),
    "push_header_surrogate": lambda b, q, d, bad: b.push(q, 1, headers={"h": "\udfff"}),
    "push_trace_id": lambda b, q, d, bad: b.push(q, 1, trace_id="not a uuid"),
    "push_trace_id_number": lambda b, q, d, bad: b.push(q, 1, trace_id=5),  # type: ignore[arg-type]
    "push_object": lambda b, q, d, bad: b.push(q, object()),
    "push_surrogate": lambda b, q, d, bad: b.push(q, "\ud800"),
    "push_odd_keys": lambda b, q, d, bad: b.push(q, {(1, 2): 3}),
    "push_cycle": lambda b, q, d, bad: b.push(q, _cycle()),
    "push_deep": lambda b, q, d, bad: b.push(q, _nested(JSON_DEPTH_MAX + 1)),
    "push_raw": lambda b, q, d, bad: b.push(q, msgspec.Raw(b'{"half":')),
    "push_long": lambda b, q, d, bad: b.push(q, "x" * MESSAGE_BYTES_MAX),
    "push_many_word": lambda b, q, d, bad: b.push_many("items"),  # type: ignore[arg-type]
    "push_many_dicts": lambda b, q, d, bad: b.push_many([{"queue": q, "payload": b"1"}]),  # type: ignore[list-item]
    "push_many_none": lambda b, q, d, bad: b.push_many(None),  # type: ignore[arg-type]
    "push_many_text": lambda b, q, d, bad: b.push_many(push_items(q, payload="1")),
    "push_many_too_many": lambda b, q, d, bad: b.push_many(push_items(q) * BATCH_ITEMS_MAX),
    "pop_wait_text": lambda b, q, d, bad: b.pop(q, wait="1"),  # type: ignore[arg-type]
    "pop_wait_negative": lambda b, q, d, bad: b.pop(q, wait=-1),
    "pop_wait_nan": lambda b, q, d, bad: b.pop(q, wait=float("nan")),
    "pop_wait_for_ever": lambda b, q, d, bad: b.pop(q, wait=float("inf")),
    "pop_long_lease": lambda b, q, d, bad: b.pop(q, lease_seconds=LEASE_SECONDS_MAX + 1),
    "pop_subscription": lambda b, q, d, bad: b.pop(q, group="n", subscription="new"),  # type: ignore[arg-type]
    "pop_mode": lambda b, q, d, bad: b.pop(q, group="n", subscription=Subscription("old")),  # type: ignore[arg-type]
    "push_not_a_number": lambda b, q, d, bad: b.push(q, {"total": float("nan")}),
    "pop_no_time": lambda b, q, d, bad: b.pop(q, group="n", subscription=Subscription("time")),
    "pop_bad_time": lambda b, q, d, bad: b.pop(q, group="n", subscription=Subscription("time", 2**60)),
    "pop_text_time": lambda b, q, d, bad: b.pop(q, group="n", subscription=Subscription("time", "0")),
    "pop_conflation": lambda b, q, d, bad: b.pop(q, group="n", subscription=Subscription(conflation="yes")),  # type: ignore[arg-type]
    "pop_conflation_alone": lambda b, q, d, bad: b.pop(q, subscription=Subscription(conflation=True)),
    "pop_auto_ack": lambda b, q, d, bad: b.pop(q, auto_ack="yes"),  # type: ignore[arg-type]
    "ack_none": lambda b, q, d, bad: b.ack(None),  # type: ignore[arg-type]
    "ack_text": lambda b, q, d, bad: b.ack("delivery"),  # type: ignore[arg-type]
    "ack_status": lambda b, q, d, bad: b.ack(d, "done"),  # type: ignore[arg-type]
    "ack_status_list": lambda b, q, d, bad: b.ack(d, ["completed"]),  # type: ignore[arg-type]
    "ack_error": lambda b, q, d, bad: b.ack(d, "failed", error=5),  # type: ignore[arg-type]
    "ack_delay": lambda b, q, d, bad: b.ack(d, "failed", delay_ms=-1),
    "ack_huge_delay": lambda b, q, d, bad: b.ack(d, "failed", delay_ms=2**60),
    "ack_result": lambda b, q, d, bad: b.ack(d, result=object()),
    "ack_long_result": lambda b, q, d, bad: b.ack(d, result="x" * 100_000),
    "ack_bad_result": lambda b, q, d, bad: b.ack_many([item(d, result=b'{"half":')]),
    "ack_text_result": lambda b, q, d, bad: b.ack_many([item(d, result="text")]),
    "ack_lease": lambda b, q, d, bad: b.ack_many([item(d, lease=5)]),
    "ack_partition": lambda b, q, d, bad: b.ack_many([item(d, partition="0-1")]),
    "ack_dicts": lambda b, q, d, bad: b.ack_many([{"transactionId": "x"}]),  # type: ignore[list-item]
    "ack_too_many": lambda b, q, d, bad: b.ack_many([item(d)] * (BATCH_ITEMS_MAX + 1)),
    "ack_position": lambda b, q, d, bad: b.ack_many([item(d, position=-1)]),
    "ack_text_position": lambda b, q, d, bad: b.ack_many([item(d, position="0")]),
    "transact_none": lambda b, q, d, bad: b.transact(None),  # type: ignore[arg-type]
    "transact_text": lambda b, q, d, bad: b.transact(["push"]),  # type: ignore[list-item]
    "transact_retry": lambda b, q, d, bad: b.transact([AckStep(item(d, status="retry"), d.group)]),
    "transact_status": lambda b, q, d, bad: b.transact([AckStep(item(d, status="done"), d.group)]),
    "configure_unknown": lambda b, q, d, bad: b.queues.configure(q, max_sise=3),
    "configure_ordering": lambda b, q, d, bad: b.queues.configure(q, ordering="random"),
    "configure_text": lambda b, q, d, bad: b.queues.configure(q, max_size="3"),
    "configure_flag": lambda b, q, d, bad: b.queues.configure(q, retry_jitter=1),
    "configure_negative": lambda b, q, d, bad: b.queues.configure(q, retry_delay_ms=-1),
    "configure_huge": lambda b, q, d, bad: b.queues.configure(q, max_size=2**64),
    "configure_letter_queue": lambda b, q, d, bad: b.queues.configure(q, dead_letter_queue="\0"),
    "configure_namespace": lambda b, q, d, bad: b.queues.configure(q, namespace="\0"),
    "configure_task": lambda b, q, d, bad: b.queues.configure(q, task=5),  # type: ignore[arg-type]
    "seek_text": lambda b, q, d, bad: b.groups.seek(q, d.group, "ends"),
    "seek_nowhere": lambda b, q, d, bad: b.groups.seek(q, d.group, Seek("nowhere")),  # type: ignore[arg-type]
    "seek_negative": lambda b, q, d, bad: b.groups.seek(q, d.group, Seek("position", -1)),
    "seek_huge": lambda b, q, d, bad: b.groups.seek(q, d.group, Seek("time", 2**62)),
    "seek_fraction": lambda b, q, d, bad: b.groups.seek(q, d.group, Seek("time", 1.5)),  # type: ignore[arg-type]
    "letters_filter": lambda b, q, d, bad: b.dead_letters.page(q, {"group": "g"}),  # type: ignore[arg-type]
    "letters_ids": lambda b, q, d, bad: b.dead_letters.page(q, DeadFilter(ids="abc")),  # type: ignore[arg-type]
    "letters_number": lambda b, q, d, bad: b.dead_letters.purge(q, DeadFilter(ids=[5])),  # type: ignore[list-item]
    "letters_partition": lambda b, q, d, bad: b.dead_letters.replay(q, DeadFilter(partition="0-1")),  # type: ignore[arg-type]
    "letters_time": lambda b, q, d, bad: b.dead_letters.purge(q, DeadFilter(failed_from="now")),  # type: ignore[arg-type]
    "letters_huge_time": lambda b, q, d, bad: b.dead_letters.purge(q, DeadFilter(failed_until=2**70)),
    "letters_flag": lambda b, q, d, bad: b.dead_letters.purge(q, DeadFilter(replayed="no")),  # type: ignore[arg-type]
}
BY_PAYLOAD: dict[str, Call] = {
    "push": lambda b, q, d, bad: b.push(q, msgspec.Raw(bad)),
    "push_many": lambda b, q, d, bad: b.push_many(push_items(q, payload=bad)),
    "push_many_raw": lambda b, q, d, bad: b.push_many(push_items(q, payload=msgspec.Raw(bad))),
    "transact": lambda b, q, d, bad: b.transact(push_items(q, payload=bad)),
    "ack_result": lambda b, q, d, bad: b.ack_many([item(d, result=bad)]),
}
NOT_THERE: dict[str, Call] = {
    "depth": lambda b, q, d, bad: b.queues.depth("missing"),
    "groups": lambda b, q, d, bad: b.groups.all("missing"),
    "lanes": lambda b, q, d, bad: b.groups.lanes(q, "missing"),
    "seek": lambda b, q, d, bad: b.groups.seek(q, "missing", Seek("end")),
    "seek_partition": lambda b, q, d, bad: b.groups.seek(q, d.group, Seek("end"), partition="missing"),
    "delete_group": lambda b, q, d, bad: b.groups.delete(q, "missing"),
    "dead_letters": lambda b, q, d, bad: b.dead_letters.page("missing"),
    "replay": lambda b, q, d, bad: b.dead_letters.replay("missing"),
    "purge": lambda b, q, d, bad: b.dead_letters.purge("missing"),
}


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _nested(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth - 1):
        nested = [nested]
    return nested


async def begin(harness: Harness) -> Message[Any]:
    """Create a queue with a leased message and one behind it."""
    queue = harness.name("q")
    await harness.broker.push(queue, "leased")
    await harness.broker.push(queue, "waiting")
    [delivery] = await harness.broker.pop(queue)
    return delivery


async def wrongly_taken(
    harness: Harness, calls: dict[str, Call], bads: dict[str, Any], error: type[FairlaneError]
) -> list[str]:
    """Return the calls that did not raise this error for bad values, or that changed the queue."""
    delivery = await begin(harness)
    wrong = []
    before = await state(harness.broker, delivery.queue)
    for name, call in calls.items():
        for kind, bad in bads.items():
            try:
                answer = await call(harness.broker, delivery.queue, delivery, bad)
                wrong.append(f"{name} took {kind} and answered {answer!r:.100}")
            except error as caught:
                # A sentence, not a code, and not the whole input.
                if " " not in str(caught) or len(str(caught)) > 2_000:
                    wrong.append(f"{name} refused {kind} with {caught!s:.100}")
            except Exception as other:
                wrong.append(f"{name} met {kind} with {other!r:.150}")
        after = await state(harness.broker, delivery.queue)
        if after != before:
            wrong.append(f"{name} changed the queue")
            before = after
    return wrong


async def state(broker: Broker, queue: str) -> Any:
    groups = await broker.groups.all(queue)
    lanes = [await broker.groups.lanes(queue, group.name) for group in groups]
    options = [found.options for found in await broker.queues.all() if found.name == queue]
    return groups, lanes, options, await broker.dead_letters.page(queue), await broker.queues.depth(queue)


async def test_a_name_that_cannot_be_one_is_refused(harness: Harness) -> None:
    assert await wrongly_taken(harness, BY_NAME, BAD_NAMES, InvalidRequest) == []


async def test_a_number_out_of_bounds_is_refused(harness: Harness) -> None:
    assert await wrongly_taken(harness, BY_COUNT, BAD_COUNTS, InvalidRequest) == []


async def test_a_value_of_the_wrong_kind_is_refused(harness: Harness) -> None:
    assert await wrongly_taken(harness, OTHERS, {"it": None}, InvalidRequest) == []


async def test_a_payload_that_would_spoil_an_answer_is_refused(harness: Harness) -> None:
    assert await wrongly_taken(harness, BY_PAYLOAD, BAD_PAYLOADS, InvalidRequest) == []


async def test_the_largest_payload_is_checked_without_holding_up_anybody(harness: Harness) -> None:
    """A blocked event loop fails the test."""
    queue = harness.name("q")
    one = b'{"id":1,"tags":["a","b"],"text":"[{\\"]"},'
    payload = b"[" + one * (MESSAGE_BYTES_MAX // len(one) - 1) + b"{}]"
    assert len(payload) > MESSAGE_BYTES_MAX * 0.99
    for _ in range(2):
        [outcome] = await harness.broker.push_many([PushItem(queue=queue, payload=payload)])
        assert outcome.status == "queued"
    assert bytes((await harness.broker.pop(queue))[0].raw) == payload


async def test_what_is_not_there_is_not_found(harness: Harness) -> None:
    assert await wrongly_taken(harness, NOT_THERE, {"it": None}, NotFound) == []


async def test_a_partition_that_never_was_is_unresolvable(harness: Harness) -> None:
    delivery = await begin(harness)
    for partition in (PartitionId(0, 2**62), PartitionId(2**31 - 1, 1), PartitionId(0, 2**63 - 1)):
        before = await state(harness.broker, delivery.queue)
        [outcome] = await harness.broker.ack_many([item(delivery, partition=partition, lease=None)])
        assert outcome.code == "unresolvable"
        [outcome] = await harness.broker.ack_many([item(delivery, partition=partition)])
        assert outcome.code in ("lease_lost", "unresolvable")
        assert await state(harness.broker, delivery.queue) == before


@pytest.mark.parametrize("status", ["completed", "failed", "dlq"])
async def test_a_position_that_is_not_in_the_lease_finishes_nothing(harness: Harness, status: str) -> None:
    delivery = await begin(harness)
    for position in (1, 2**52):
        before = await state(harness.broker, delivery.queue)
        [outcome] = await harness.broker.ack_many([item(delivery, position=position, status=status)])
        assert not outcome.success
        assert await state(harness.broker, delivery.queue) == before


async def test_a_lease_that_is_no_text_is_no_lease(harness: Harness) -> None:
    for lease in ("", "x", None, 5, b"lease", "\0", "\ud800", "9" * 1000):
        assert (await harness.broker.renew(lease)).renewed == 0  # type: ignore[arg-type]
        assert await harness.broker.release(lease) == 0  # type: ignore[arg-type]


async def test_an_error_text_is_made_one_that_can_be_kept(harness: Harness) -> None:
    delivery = await begin(harness)
    [outcome] = await harness.broker.ack(delivery, "dlq", error="nul \0 surrogate \ud800 " + "x" * 10_000)
    assert outcome.dead_lettered
    [letter] = await harness.broker.dead_letters.page(delivery.queue)
    assert letter.error.startswith("nul \ufffd surrogate ")
    assert len(letter.error) <= 4096


async def test_a_url_that_names_no_store_is_refused(harness: Harness) -> None:
    bare = harness.url.partition("://")[2].lstrip("/").removesuffix(".db")  # with either, it would name a file
    for url in (None, 5, "", bare, f"mysql://{bare}", "sqlite://queue.db"):
        with pytest.raises(InvalidRequest):
            async with Broker.open(url):  # type: ignore[arg-type]
                pass
