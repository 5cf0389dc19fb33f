"""Traces over HTTP."""

from __future__ import annotations

from tests.http.wire import Wire


async def test_traces_are_found_by_message_and_by_name(wire: Wire) -> None:
    queue, partition, name = wire.name(), wire.name("lane"), wire.name("flow")
    id = f"id {queue}"[:250]
    [pushed] = await wire.push(queue, {"n": 1}, ids=[id], partition=partition)
    message = {"transactionId": id, "partitionId": pushed["partition_id"]}
    body = {**message, "data": {"text": "began", "n": [1]}, "traceNames": [name, "other"], "eventType": "step"}
    added = (await wire.post("/api/v1/traces", body=body)).ok(201)
    assert added["success"] is True
    (await wire.post("/api/v1/traces", body={**message, "data": "done", "traceNames": name})).ok(201)
    (await wire.post("/api/v1/traces", body={**message, "data": None})).ok(201)
    traces = (await wire.get("/api/v1/traces", pushed["partition_id"], id)).ok()["traces"]
    assert [trace["data"] for trace in traces] == [{"text": "began", "n": [1]}, "done", None]
    first = traces[0]
    assert (first["id"], first["event_type"], first["trace_names"]) == (added["traceId"], "step", [name, "other"])
    assert first["consumer_group"] == "__QUEUE_MODE__"
    named = (await wire.get("/api/v1/traces/by-name", name, limit=1)).ok()
    assert (named["total"], named["pagination"]) == (2, {"limit": 1, "offset": 0})
    [one] = named["traces"]
    assert (one["transaction_id"], one["queue_name"], one["partition_name"]) == (id, queue, partition)
    assert one["message_payload"] == {"n": 1}


async def test_trace_names_are_listed(wire: Wire) -> None:
    queue, name = wire.name(), wire.name("flow")
    [pushed] = await wire.push(queue, 1, ids=["x"])
    message = {"transactionId": "x", "partitionId": pushed["partition_id"]}
    for _ in range(2):
        (await wire.post("/api/v1/traces", body={**message, "data": 1, "traceNames": [name]})).ok(201)
    found = (await wire.get("/api/v1/traces/names", limit=1)).ok()
    assert found["total"] >= 1
    [entry] = found["trace_names"]
    assert (entry["trace_name"], entry["trace_count"], entry["message_count"]) == (name, 2, 1)


async def test_a_trace_of_nothing_is_refused(wire: Wire) -> None:
    [pushed] = await wire.push(wire.name(), 1, ids=["x"])
    message = {"transactionId": "x", "partitionId": pushed["partition_id"]}
    (await wire.post("/api/v1/traces", body=message)).refused(400)
    (await wire.post("/api/v1/traces", body={"data": 1})).refused(400)
    (await wire.post("/api/v1/traces", body={**message, "partitionId": "x", "data": 1})).refused(400)
    (await wire.post("/api/v1/traces", body={**message, "transactionId": "y", "data": 1})).refused(404)
    (await wire.post("/api/v1/traces", body={**message, "data": "x" * 70_000})).refused(400)
    (await wire.post("/api/v1/traces", body={**message, "data": 1, "traceNames": ["n"] * 65})).refused(400)
    (await wire.post("/api/v1/traces", body={**message, "data": 1, "traceNames": [""]})).refused(400)
    deep = b'{"transactionId":"x","partitionId":"%b","data":%b}' % (
        pushed["partition_id"].encode(),
        b"[" * 200 + b"]" * 200,
    )
    (await wire.post("/api/v1/traces", body=deep)).refused(400)
    assert (await wire.get("/api/v1/traces", pushed["partition_id"], "x")).ok() == {"traces": []}
    (await wire.get("/api/v1/traces", "x", "x")).refused(404)
