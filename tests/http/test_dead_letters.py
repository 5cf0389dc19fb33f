"""Dead letters over HTTP."""

from __future__ import annotations

from typing import Any

from tests.http.wire import Wire


async def kill(wire: Wire, queue: str, *payloads: Any, group: str | None = None, partition: str = "Default") -> None:
    await wire.configure(queue, retryLimit=0)
    query = {"consumerGroup": group} if group else {}
    for payload in payloads:
        await wire.push(queue, payload, partition=partition)
        await wire.ack(await wire.pop(queue, partition=partition, **query), "failed", error=f"{payload} failed")


async def test_dead_letters_are_listed_with_their_total(wire: Wire) -> None:
    queue, partition = wire.name(), wire.name("lane")
    await kill(wire, queue, {"n": 1}, {"n": 2}, {"n": 3}, partition=partition)
    found = (await wire.get("/api/v1/dlq", queue=queue, limit=2)).ok()
    assert (found["total"], found["pagination"]) == (3, {"limit": 2, "offset": 0})
    last, middle = found["messages"]
    assert (last["data"], middle["data"]) == ({"n": 3}, {"n": 2})
    assert (last["queue"], last["partition"], last["consumerGroup"]) == (queue, partition, "__QUEUE_MODE__")
    assert (last["retryCount"], last["errorMessage"]) == (1, "{'n': 3} failed")
    assert last["failedAt"] >= last["createdAt"]
    [first] = (await wire.get("/api/v1/dlq", queue=queue, offset=2)).ok()["messages"]
    assert first["data"] == {"n": 1}
    by_lane = (await wire.get("/api/v1/dlq", queue=queue, partition=partition)).ok()
    assert by_lane["total"] == 3
    assert (await wire.get("/api/v1/dlq", queue=queue, partition="other")).ok()["total"] == 0
    assert (await wire.get("/api/v1/dlq", queue=queue, to="2001-01-01")).ok()["total"] == 0


async def test_dead_letters_of_one_group_and_of_all_queues(wire: Wire) -> None:
    one, two, group = wire.name(), wire.name(), wire.name("group")
    await kill(wire, one, 1, group=group)
    await kill(wire, two, 2, group=group)
    found = (await wire.get("/api/v1/dlq", consumerGroup=group)).ok()
    assert [letter["data"] for letter in found["messages"]] == [2, 1]
    assert found["total"] == 2
    assert (await wire.get("/api/v1/dlq", queue=one, consumerGroup="nobody")).ok()["total"] == 0
    assert (await wire.get("/api/v1/dlq", queue=wire.name("nobody"))).ok()["messages"] == []


async def test_letters_are_replayed_all_or_by_id_and_once(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, 1, 2, 3)
    letters = (await wire.get("/api/v1/dlq", queue=queue)).ok()["messages"]
    second = letters[1]["id"]
    some = (await wire.post("/api/v1/dlq/replay", body={"queue": queue, "ids": [second]})).ok()
    assert [entry["id"] for entry in some["replayed"]] == [second]
    rest = (await wire.post("/api/v1/dlq/replay", body={"queue": queue})).ok()
    assert len(rest["replayed"]) == 2
    assert (await wire.post("/api/v1/dlq/replay", body={"queue": queue})).ok() == {"replayed": []}
    popped = await wire.pop(queue)
    assert [message["data"] for message in popped] == [2, 1, 3]
    assert popped[0]["id"] == some["replayed"][0]["messageId"]
    replayed = {letter["id"]: letter for letter in (await wire.get("/api/v1/dlq", queue=queue)).ok()["messages"]}
    assert replayed[second]["replayedAs"] == popped[0]["id"]


async def test_letters_are_purged_all_or_by_id(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    await kill(wire, queue, 1, 2, 3, group=group)
    letters = (await wire.get("/api/v1/dlq", queue=queue)).ok()["messages"]
    ids = ",".join(letter["id"] for letter in letters[:2])
    assert (await wire.delete("/api/v1/dlq", queue=queue, ids=ids)).ok() == {"purged": 2}
    assert (await wire.delete("/api/v1/dlq", queue=queue, consumerGroup="nobody")).ok() == {"purged": 0}
    assert (await wire.delete("/api/v1/dlq", queue=queue, consumerGroup=group)).ok() == {"purged": 1}
    assert (await wire.get("/api/v1/dlq", queue=queue)).ok()["total"] == 0


async def test_a_replay_beyond_the_capacity_is_a_429(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, 1, 2)
    await wire.configure(queue, retryLimit=0, maxSize=1)
    refused = (await wire.post("/api/v1/dlq/replay", body={"queue": queue})).refused(429, "QUEUE_FULL")
    assert refused["capacity"] == 1
    assert (await wire.get("/api/v1/dlq", queue=queue)).ok()["messages"][0]["replayedAt"] is None


async def test_a_queue_must_be_named_and_be_there(wire: Wire) -> None:
    (await wire.post("/api/v1/dlq/replay", body={})).refused(400)
    (await wire.post("/api/v1/dlq/replay", body={"queue": wire.name("nobody")})).refused(404)
    (await wire.delete("/api/v1/dlq")).refused(400)
    (await wire.delete("/api/v1/dlq", queue=wire.name("nobody"))).refused(404)


async def test_a_letter_tells_all_its_errors_and_many_are_chosen_by_one(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=1)
    for payload, lane in ((1, "a"), (2, "b"), (3, "b")):
        await wire.push(queue, payload, partition=lane)
        for number in range(2):
            await wire.ack(await wire.pop(queue, partition=lane), "failed", error=f"{payload} failed {number}")
    found = (await wire.get("/api/v1/dlq", queue=queue, error="2 failed")).ok()
    assert found["total"] == 1
    [letter] = found["messages"]
    assert [one["error"] for one in letter["errors"]] == ["2 failed 0", "2 failed 1"]
    assert [one["at"] for one in letter["errors"]] == [letter["firstFailedAt"], letter["failedAt"]]
    body = {"queue": queue, "partition": "b", "error": "failed 1", "from": letter["failedAt"]}
    replayed = (await wire.post("/api/v1/dlq/replay", body=body)).ok()["replayed"]
    assert len(replayed) == 2
    assert (await wire.post("/api/v1/dlq/replay", body={**body, "partition": "c"})).ok() == {"replayed": []}
    assert (await wire.delete("/api/v1/dlq", queue=queue, partition="a", error="1 failed")).ok() == {"purged": 1}
    assert (await wire.get("/api/v1/dlq", queue=queue)).ok()["total"] == 2


async def test_a_queue_named_for_dead_letters_is_made_and_no_circle_is(wire: Wire) -> None:
    work, graves, last = wire.name(), wire.name("graves"), wire.name("last")
    options = (await wire.configure(work, retryLimit=0, deadLetterQueue=graves))["options"]
    assert options["deadLetterQueue"] == graves
    await wire.get(f"/api/v1/resources/queues/{graves}")
    await wire.configure(graves, deadLetterQueue=last)
    for name, target in ((last, work), (last, last), (graves, graves)):
        body = {"queue": name, "options": {"deadLetterQueue": target}}
        refused = await wire.post("/api/v1/configure", body=body)
        assert refused.status == 400
        assert "leads back" in refused.json["error"]
    await wire.push(work, {"n": 1})
    await wire.ack(await wire.pop(work), "failed", error="broken")
    [told] = await wire.pop(graves, wait="true", timeout=10_000)
    assert (told["data"]["original_message"], told["data"]["error"], told["data"]["attempts"]) == (
        {"n": 1},
        "broken",
        1,
    )


async def test_letters_are_counted_by_error_across_queues(wire: Wire) -> None:
    one, two, group = wire.name(), wire.name(), wire.name("group")
    await kill(wire, one, 1, 2, group=group)
    for queue, count in ((one, 3), (two, 2)):
        await wire.configure(queue, retryLimit=0)
        for _ in range(count):
            await wire.push(queue, 0)
            await wire.ack(await wire.pop(queue, consumerGroup=group), "failed", error="boom")
    found = (await wire.get("/api/v1/dlq/errors", consumerGroup=group)).ok()
    rows = [(row["queue"], row["error"], row["count"], row["replayed"]) for row in found["errors"]]
    assert rows[:2] == [(one, "boom", 3, 0), (two, "boom", 2, 0)]
    assert sorted(rows[2:]) == [(one, "1 failed", 1, 0), (one, "2 failed", 1, 0)]
    assert (found["total"], found["complete"]) == (7, True)
    assert all(row["consumerGroup"] == group for row in found["errors"])
    assert all(row["firstFailedAt"] <= row["lastFailedAt"] for row in found["errors"])
    first = (await wire.get("/api/v1/dlq/errors", consumerGroup=group, limit=1)).ok()
    assert ([row["count"] for row in first["errors"]], first["complete"]) == ([3], False)
    await wire.post("/api/v1/dlq/replay", body={"queue": one, "error": "boom", "limit": 2})
    [row] = (await wire.get("/api/v1/dlq/errors", queue=one, error="boom")).ok()["errors"]
    assert (row["count"], row["replayed"]) == (3, 2)
    assert (await wire.get("/api/v1/dlq", queue=one, error="boom", replayed="false")).ok()["total"] == 1
    assert (await wire.get("/api/v1/dlq", queue=one, replayed="true")).ok()["total"] == 2
    assert (await wire.get("/api/v1/dlq/errors", queue=wire.name("nobody"))).ok()["errors"] == []


async def test_letters_are_replayed_some_at_a_time_oldest_first(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, 1, 2, 3)
    for left in (2, 1):
        assert len((await wire.post("/api/v1/dlq/replay", body={"queue": queue, "limit": 2})).ok()["replayed"]) == left
    assert (await wire.post("/api/v1/dlq/replay", body={"queue": queue, "limit": 2})).ok() == {"replayed": []}
    assert [message["data"] for message in await wire.pop(queue)] == [1, 2, 3]


async def test_one_letter_may_be_edited_as_it_is_replayed(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, {"total": "x"}, {"total": 2})
    letters = (await wire.get("/api/v1/dlq", queue=queue)).ok()["messages"]
    ids = [letter["id"] for letter in letters]
    for chosen in ({}, {"ids": ids}):
        refused = await wire.post("/api/v1/dlq/replay", body={"queue": queue, "data": {"total": 1}, **chosen})
        assert "one dead letter" in refused.refused(400)["error"]
    body = {"queue": queue, "ids": ids[1:], "data": {"total": 1}}
    [done] = (await wire.post("/api/v1/dlq/replay", body=body)).ok()["replayed"]
    assert (await wire.post("/api/v1/dlq/replay", body=body)).ok() == {"replayed": []}
    [popped] = await wire.pop(queue)
    assert (popped["id"], popped["data"]) == (done["messageId"], {"total": 1})
    assert popped["headers"]["replay-of"] == letters[1]["transactionId"]
    # The letter itself stays as it was.
    kept = (await wire.get("/api/v1/dlq", queue=queue, replayed="true")).ok()["messages"]
    assert [(letter["data"], letter["replayedAs"]) for letter in kept] == [({"total": "x"}, done["messageId"])]
