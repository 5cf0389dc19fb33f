"""Streams over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.http.wire import Wire


async def register(wire: Wire, queue: str, **more: Any) -> Any:
    body = {"name": wire.name("query"), "source_queue": queue, "config_hash": "h", **more}
    return (await wire.post("/streams/v1/queries", body=body)).ok()


async def state(wire: Wire, query: str, partition: str, **more: Any) -> dict[str, Any]:
    body = {"query_id": query, "partition_id": partition, "keys": [], **more}
    rows = (await wire.post("/streams/v1/state/get", body=body)).ok()["rows"]
    return {row["key"]: row["value"] for row in rows}


def cycle(query: str, messages: list[Any], last: int, **more: Any) -> dict[str, Any]:
    """Return what a runtime sends after it has processed the messages up to `last`."""
    message = messages[last]
    return {
        "query_id": query,
        "partition_id": message["partitionId"],
        "consumer_group": message["consumerGroup"],
        "state_ops": [],
        "push_items": [],
        "ack": {
            "transactionId": message["transactionId"],
            "leaseId": message["leaseId"],
            "status": "completed",
            "count": last + 1,
        },
        "release_lease": True,
        **more,
    }


async def test_a_query_is_registered_once(wire: Wire) -> None:
    name = wire.name("query")
    body = {"name": name, "source_queue": "in", "config_hash": "h1", "reset": False}
    first = (await wire.post("/streams/v1/queries", body=body)).ok()
    assert (first["success"], first["fresh"], first["reset"], first["name"]) == (True, True, False, name)
    second = (await wire.post("/streams/v1/queries", body={**body, "sink_queue": "out"})).ok()
    assert (second["query_id"], second["fresh"]) == (first["query_id"], False)
    refused = (await wire.post("/streams/v1/queries", body={**body, "config_hash": "h2"})).refused(409)
    assert "config_hash mismatch" in refused["error"]
    assert (refused["success"], refused["query_id"]) == (False, first["query_id"])
    reset = (await wire.post("/streams/v1/queries", body={**body, "config_hash": "h2", "reset": True})).ok()
    assert (reset["reset"], reset["config_hash"]) == (True, "h2")
    for missing in ("name", "source_queue", "config_hash"):
        incomplete = {key: value for key, value in body.items() if key != missing}
        assert missing in (await wire.post("/streams/v1/queries", body=incomplete)).refused(400)["error"]


async def test_a_cycle_changes_state_pushes_and_acks(wire: Wire) -> None:
    source, sink = wire.name(), wire.name("sink")
    query = (await register(wire, source, sink_queue=sink))["query_id"]
    await wire.push(source, 1, 2, 3, partition="p")
    messages = await wire.pop(source, consumerGroup=f"streams.{query}")
    items = [{"queue": sink, "partition": "out", "payload": {"n": n}} for n in range(3)]
    ops = [{"type": "upsert", "key": "sum\u001fx", "value": {"windowEnd": 5, "acc": 6}}]
    body = cycle(query, messages, 2, state_ops=ops, push_items=items)
    done = (await wire.post("/streams/v1/cycle", body=body)).ok()
    assert (done["success"], done["state_ops_applied"], done["queueName"]) == (True, 1, source)
    assert done["ack_result"] == {"success": True, "count": 3, "lease_released": True, "dlq": False}
    assert [each["status"] for each in done["push_results"]] == ["queued"] * 3
    assert await state(wire, query, body["partition_id"]) == {"sum\u001fx": {"windowEnd": 5, "acc": 6}}
    assert [message["data"]["n"] for message in await wire.pop(sink)] == [0, 1, 2]
    assert await wire.pop(source, consumerGroup=f"streams.{query}") == []


async def test_a_cycle_with_a_lost_lease_changes_nothing(wire: Wire) -> None:
    source, sink = wire.name(), wire.name("sink")
    query = (await register(wire, source))["query_id"]
    await wire.push(source, 1)
    messages = await wire.pop(source, consumerGroup="g")
    (await wire.post("/api/v1/lease", messages[0]["leaseId"], "release")).ok()
    body = cycle(
        query,
        messages,
        0,
        state_ops=[{"type": "upsert", "key": "k", "value": 1}],
        push_items=[{"queue": sink, "payload": 1}],
    )
    refused = (await wire.post("/streams/v1/cycle", body=body)).ok()
    assert refused["success"] is False
    assert "lease" in refused["error"]
    assert await state(wire, query, body["partition_id"]) == {}
    assert await wire.pop(sink) == []
    assert len(await wire.pop(source, consumerGroup="g")) == 1


async def test_a_part_of_a_batch_is_acked_and_its_lease_kept_or_released(wire: Wire) -> None:
    source = wire.name()
    query = (await register(wire, source))["query_id"]
    await wire.push(source, 1, 2, 3, 4)
    messages = await wire.pop(source, consumerGroup="g")
    kept = (await wire.post("/streams/v1/cycle", body=cycle(query, messages, 0, release_lease=False))).ok()
    assert kept["ack_result"]["lease_released"] is False
    assert await wire.pop(source, consumerGroup="g") == []
    freed = (await wire.post("/streams/v1/cycle", body=cycle(query, messages, 1))).ok()
    assert freed["ack_result"]["lease_released"] is True
    assert [message["data"] for message in await wire.pop(source, consumerGroup="g")] == [3, 4]


async def test_a_failed_cycle_dead_letters_at_once(wire: Wire) -> None:
    source = wire.name()
    query = (await register(wire, source))["query_id"]
    await wire.push(source, 1, 2)
    messages = await wire.pop(source, consumerGroup="g")
    body = cycle(query, messages, 0)
    body["ack"] |= {"status": "failed", "error": "poison"}
    done = (await wire.post("/streams/v1/cycle", body=body)).ok()
    assert done["ack_result"]["dlq"] is True
    [letter] = (await wire.get("/api/v1/dlq", queue=source)).ok()["messages"]
    assert (letter["data"], letter["errorMessage"]) == (1, "poison")
    assert [message["data"] for message in await wire.pop(source, consumerGroup="g")] == [2]


async def test_a_cycle_may_have_no_ack(wire: Wire) -> None:
    source = wire.name()
    query = (await register(wire, source))["query_id"]
    [pushed] = await wire.push(source, 1)
    where = {"query_id": query, "partition_id": pushed["partition_id"]}
    ops = [
        {"type": "upsert", "key": "a", "value": {"windowEnd": 10}},
        {"type": "upsert", "key": "b", "value": {"windowEnd": "soon"}},
        {"type": "upsert", "key": "c", "value": None},
    ]
    done = (await wire.post("/streams/v1/cycle", body={**where, "state_ops": ops, "ack": None})).ok()
    assert (done["ack_result"], done["push_results"], done["state_ops_applied"]) == (None, [], 3)
    (await wire.post("/streams/v1/cycle", body={**where, "state_ops": [{"type": "delete", "key": "b"}]})).ok()
    partition = pushed["partition_id"]
    assert await state(wire, query, partition) == {"a": {"windowEnd": 10}, "c": None}
    assert await state(wire, query, partition, ripe_at_or_before=10) == {"a": {"windowEnd": 10}}
    assert await state(wire, query, partition, ripe_at_or_before=9) == {}
    assert await state(wire, query, partition, keys=["c", "x"]) == {"c": None}
    assert await state(wire, query, partition, key_prefix="a") == {"a": {"windowEnd": 10}}


async def test_what_a_stream_holds_is_not_flushed_beside_it(wire: Wire) -> None:
    source, sink = wire.name(), wire.name("sink")
    registered = await register(wire, source)
    query, group = registered["query_id"], f"streams.{registered['name']}"
    [pushed] = await wire.push(source, 1)
    partition = pushed["partition_id"]
    where = {"query_id": query, "partition_id": partition, "consumer_group": group}
    ops = [{"type": "upsert", "key": "w", "value": {"windowEnd": 10}}]
    (await wire.post("/streams/v1/cycle", body={**where, "state_ops": ops})).ok()
    flush = {
        **where,
        "state_ops": [{"type": "delete", "key": "w"}],
        "push_items": [{"queue": sink, "payload": "closed"}],
        "ack": None,
    }
    messages = await wire.pop(source, consumerGroup=group)
    assert await state(wire, query, partition, ripe_at_or_before=10) == {}
    assert await state(wire, query, partition) == {"w": {"windowEnd": 10}}, "the consumer itself sees it"
    skipped = (await wire.post("/streams/v1/cycle", body=flush)).ok()
    assert (skipped["success"], skipped["state_ops_applied"], skipped["push_results"]) == (True, 0, [])
    assert "holds the partition" in skipped["skipped"]
    other: dict[str, Any]
    for other in ({"state_ops": [*flush["state_ops"], *ops]}, {"state_ops": ops}, {"state_ops": []}):
        refused = (await wire.post("/streams/v1/cycle", body=flush | other)).ok()
        assert (refused["success"], refused["code"]) == (False, "state_moved"), "what it sets would be lost"
        assert "holds the partition" in refused["error"]
    closing = cycle(query, messages, 0, state_ops=flush["state_ops"], push_items=flush["push_items"])
    assert (await wire.post("/streams/v1/cycle", body=closing)).ok()["success"]
    late = (await wire.post("/streams/v1/cycle", body=flush)).ok()
    assert (late["success"], late["state_ops_applied"], late["push_results"]) == (True, 0, [])
    assert "is gone" in late["skipped"]
    assert [message["data"] for message in await wire.pop(sink)] == ["closed"]


async def test_null_is_as_good_as_absent_in_bodies_of_streams(wire: Wire) -> None:
    """The Go client sends an empty list as null."""
    source = wire.name()
    query = (await register(wire, source, sink_queue=None, reset=None))["query_id"]
    [pushed] = await wire.push(source, 1)
    where = {"query_id": query, "partition_id": pushed["partition_id"]}
    nothing = dict.fromkeys(("consumer_group", "release_lease", "push_items", "ack"))
    ops = [{"type": "upsert", "key": "k", "value": None}]
    assert (await wire.post("/streams/v1/cycle", body={**where, **nothing, "state_ops": ops})).ok()["success"]
    assert (await wire.post("/streams/v1/cycle", body={**where, **nothing, "state_ops": None})).ok()["success"]
    nulls = dict.fromkeys(("keys", "key_prefix", "ripe_at_or_before"))
    rows = (await wire.post("/streams/v1/state/get", body={**where, **nulls})).ok()["rows"]
    assert [(row["key"], row["value"]) for row in rows] == [("k", None)], "and a null that is a value stays one"


async def test_a_cycle_that_makes_no_sense_is_refused(wire: Wire) -> None:
    source = wire.name()
    query = (await register(wire, source))["query_id"]
    [pushed] = await wire.push(source, 1, ids=["x"])
    good = {"query_id": query, "partition_id": pushed["partition_id"]}
    bad: dict[str, Any]
    for bad in (
        {"query_id": "x"},
        {"partition_id": "x"},
        {"state_ops": [{"type": "grow", "key": "k"}]},
        {"state_ops": [{"type": "upsert", "key": "k"}]},
        {"state_ops": [{"type": "upsert", "key": "", "value": 1}]},
        {"state_ops": [{"type": "upsert", "key": "a\0b", "value": 1}]},
        {"state_ops": [{"type": "upsert", "key": "k" * 600, "value": 1}]},
        {"push_items": [{"queue": "", "payload": 1}]},
        {"ack": {"transactionId": "x", "status": "maybe"}},
        {"ack": {}},
    ):
        (await wire.post("/streams/v1/cycle", body={**good, **bad})).refused(400)
    (await wire.post("/streams/v1/cycle", body={**good, "query_id": str(uuid4())})).refused(404)
    (await wire.post("/streams/v1/cycle", body={**good, "partition_id": "0-999999999"})).refused(404)
    (await wire.post("/streams/v1/state/get", body={**good, "query_id": str(uuid4())})).refused(404)
    (await wire.post("/streams/v1/state/get", body={**good, "keys": ["a\0"]})).refused(400)
    unknown = (await wire.post("/streams/v1/cycle", body={**good, "ack": {"transactionId": "nobody"}})).ok()
    assert unknown["success"] is False
