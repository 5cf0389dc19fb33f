"""Consumer groups over HTTP."""

from __future__ import annotations

from typing import Any

from tests.http.wire import Wire


async def entry(wire: Wire, group: str) -> Any:
    [found] = [each for each in (await wire.get("/api/v1/consumer-groups")).ok() if each["name"] == group]
    return found


async def test_groups_are_listed_with_their_lag(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    await wire.push(queue, 1, 2, 3, partition="a")
    await wire.push(queue, 4, partition="b")
    await wire.ack(await wire.pop(queue, partition="a", batch=2, consumerGroup=group, subscriptionMode="all"))
    found = await entry(wire, group)
    assert (found["queueName"], found["topics"], found["members"]) == (queue, [queue], 2)
    assert (found["partitionsWithLag"], found["totalLag"], found["state"]) == (2, 2, "Stable")
    assert 0 <= found["maxTimeLag"] < 60
    assert found["subscriptionMode"] == "all"


async def test_groups_get_the_same_messages_with_fields_of_their_own(wire: Wire) -> None:
    queue, payloads = wire.name(), [{"retryCount": 0}, "two", {"consumerGroup": "none"}]
    pushed = [*await wire.push(queue, payloads[0]), *await wire.push(queue, *payloads[1:])]
    seen = []
    for group in (wire.name("group") for _ in range(4)):
        popped = await wire.pop(queue, consumerGroup=group, subscriptionMode="all")
        assert {one.pop("consumerGroup") for one in popped} == {group}
        assert len({one.pop("leaseId") for one in popped}) == 1
        seen.append(popped)
    assert seen.count(seen[0]) == 4
    assert [one["data"] for one in seen[0]] == payloads
    assert [one["position"] for one in seen[0]] == [0, 1, 2]
    assert [one["transactionId"] for one in seen[0]] == [one["transaction_id"] for one in pushed]


async def test_only_the_first_message_of_a_failed_batch_counts_an_attempt(wire: Wire) -> None:
    queue, payloads = wire.name(), [{"retryCount": 0}, {"retryCount": 0}]
    await wire.push(queue, *payloads)
    await wire.ack((await wire.pop(queue))[:1], "failed")
    popped = await wire.pop(queue)
    assert [(one["retryCount"], one["data"]) for one in popped] == list(zip([1, 0], payloads, strict=True))


async def test_a_group_is_shown_with_its_lanes(wire: Wire) -> None:
    queue, group, partition = wire.name(), wire.name("group"), wire.name("lane")
    await wire.push(queue, 1, 2, partition=partition)
    [held] = await wire.pop(queue, batch=1, consumerGroup=group)
    shown = (await wire.get("/api/v1/consumer-groups", group)).ok()
    [view] = shown[queue]["partitions"]
    assert (view["partition"], view["partitionId"]) == (partition, held["partitionId"])
    assert (view["offsetLag"], view["leaseActive"], view["totalConsumed"]) == (2, True, 0)
    (await wire.get("/api/v1/consumer-groups", wire.name("nobody"))).refused(404)


async def test_lagging_lanes_are_found(wire: Wire) -> None:
    queue, group, partition = wire.name(), wire.name("group"), wire.name("lane")
    await wire.push(queue, 1, 2, partition=partition)
    await wire.ack(await wire.pop(queue, batch=1, consumerGroup=group))
    found = (await wire.get("/api/v1/consumer-groups/lagging", minLagSeconds=0)).ok()
    [one] = [each for each in found if each["consumer_group"] == group]
    assert (one["queue_name"], one["partition_name"], one["offset_lag"]) == (queue, partition, 1)
    later = (await wire.get("/api/v1/consumer-groups/lagging", minLagSeconds=3600)).ok()
    assert group not in [each["consumer_group"] for each in later]
    (await wire.get("/api/v1/consumer-groups/lagging", minLagSeconds="abc")).refused(400)


async def test_a_group_is_sent_to_the_end_the_beginning_a_time_and_a_position(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    await wire.push(queue, 1)
    await wire.push(queue, 2)
    await wire.push(queue, 3)
    times = [message["createdAt"] for message in await wire.pop(queue, consumerGroup=group)]
    path = ("/api/v1/consumer-groups", group, "queues", queue, "seek")

    async def sought(body: Any) -> list[int]:
        answer = (await wire.post(*path, body=body)).ok()
        assert (answer["success"], answer["partitionsUpdated"]) == (True, 1)
        assert answer["seekToEnd"] is bool(body.get("toEnd"))
        return [message["data"] for message in await wire.pop(queue, consumerGroup=group)]

    assert await sought({"toEnd": True}) == []
    assert await sought({"toBeginning": True}) == [1, 2, 3]
    assert await sought({"position": 2}) == [3]
    assert await sought({"timestamp": times[1]}) == [2, 3]
    for body in ({}, {"toEnd": True, "position": 1}, {"timestamp": "soon"}, {"position": -1}, {"toEnd": "x"}):
        (await wire.post(*path, body=body)).refused(400)
    (await wire.post(*path)).refused(400)
    (await wire.post("/api/v1/consumer-groups", "nobody", "queues", queue, "seek", body={"toEnd": True})).refused(404)
    (await wire.post("/api/v1/consumer-groups", group, "queues", "nobody", "seek", body={"toEnd": True})).refused(404)


async def test_one_partition_is_sought_alone_and_without_a_body_to_its_end(wire: Wire) -> None:
    queue, group, partition = wire.name(), wire.name("group"), wire.name("lane")
    await wire.push(queue, 1, 2, partition=partition)
    await wire.push(queue, 3, partition="other")
    await wire.pop(queue, consumerGroup=group, partitions=10)
    path = ("/api/v1/consumer-groups", group, "queues", queue, "partitions")
    answer = (await wire.post(*path, partition, "seek")).ok()
    assert (answer["updated"], answer["partitionName"], answer["position"]) == (True, partition, 2)
    assert answer["cursorMovedTo"] is None
    assert await wire.pop(queue, partition=partition, consumerGroup=group) == []
    answer = (await wire.post(*path, partition, "seek", body={"position": 1})).ok()
    assert answer["cursorMovedTo"].endswith("Z")
    [message] = await wire.pop(queue, partition=partition, consumerGroup=group)
    assert message["data"] == 2
    (await wire.post(*path, "nobody", "seek")).refused(404)


async def test_a_group_is_deleted_of_one_queue_or_of_all(wire: Wire) -> None:
    one, two, group = wire.name(), wire.name(), wire.name("group")
    for queue in (one, two):
        await wire.push(queue, 1)
        await wire.ack(await wire.pop(queue, consumerGroup=group))
    answer = (await wire.delete("/api/v1/consumer-groups", group, "queues", one)).ok()
    assert (answer["success"], answer["deletedPartitions"], answer["queueName"]) == (True, 1, one)
    assert [message["data"] for message in await wire.pop(one, consumerGroup=group)] == [1], "it begins anew"
    answer = (await wire.delete("/api/v1/consumer-groups", group, deleteMetadata="true")).ok()
    assert (answer["deletedPartitions"], answer["metadataDeleted"]) == (2, True)
    assert (await wire.delete("/api/v1/consumer-groups", group)).ok()["deletedPartitions"] == 0
    (await wire.delete("/api/v1/consumer-groups", group, "queues", wire.name("nobody"))).refused(404)


async def test_a_subscription_outlives_its_group_if_asked_to(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    await wire.push(queue, "history")
    assert await wire.pop(queue, consumerGroup=group, subscriptionMode="new") == []
    await wire.push(queue, "new")
    await wire.ack(await wire.pop(queue, consumerGroup=group))
    answer = (await wire.delete("/api/v1/consumer-groups", group, deleteMetadata="false")).ok()
    assert answer["metadataDeleted"] is False
    assert [message["data"] for message in await wire.pop(queue, consumerGroup=group)] == ["new"]


async def test_the_time_of_a_subscription_is_changed(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    await wire.push(queue, 1)
    await wire.pop(queue, consumerGroup=group)
    body = {"subscriptionTimestamp": "2026-01-31T12:00:00Z"}
    answer = (await wire.post("/api/v1/consumer-groups", group, "subscription", body=body)).ok()
    assert (answer["rowsUpdated"], answer["newTimestamp"]) == (1, "2026-01-31T12:00:00.000000Z")
    assert (await entry(wire, group))["subscriptionTimestamp"] == "2026-01-31T12:00:00.000000Z"
    nobody = await wire.post("/api/v1/consumer-groups", wire.name("nobody"), "subscription", body=body)
    assert nobody.ok()["rowsUpdated"] == 0
    (await wire.post("/api/v1/consumer-groups", group, "subscription", body={})).refused(400)


async def test_a_seek_is_previewed_before_it_is_done(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    for lane in ("a", "b"):
        await wire.push(queue, 1, 2, 3, partition=lane)
    popped = await wire.pop(queue, partition="a", consumerGroup=group, batch=2)
    await wire.ack(popped)
    await wire.push(queue, 4, partition="a")
    [newest] = (await wire.get("/api/v1/messages", queue=queue, partition="a", limit=1)).ok()["messages"]
    path = ("/api/v1/consumer-groups", group, "queues", queue, "seek")

    async def preview(**target: Any) -> tuple[int, int, int]:
        found = (await wire.get(*path, **target)).ok()
        assert (found["consumerGroup"], found["queueName"], found["complete"]) == (group, queue, True)
        return found["partitions"], found["again"], found["skipped"]

    assert await preview(toBeginning="true") == (2, 2, 0)
    assert await preview(toEnd="true") == (2, 0, 5)
    assert await preview(position=1) == (2, 1, 1)
    assert await preview(timestamp=newest["createdAt"]) == (2, 0, 4)
    assert await preview(timestamp="2001-01-01") == (2, 2, 0)
    (await wire.get(*path)).refused(400)
    (await wire.get("/api/v1/consumer-groups", "nobody", "queues", queue, "seek", toEnd="true")).refused(404)
