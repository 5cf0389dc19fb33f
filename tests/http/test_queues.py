"""Queues and partitions over HTTP."""

from __future__ import annotations

import pytest

from fairlane.runtime.clock import wall_clock
from tests.http.wire import Wire


async def test_a_queue_is_listed_with_what_it_holds(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0)
    await wire.push(queue, 1, 2, 3, partition="p")
    messages = await wire.pop(queue, batch=2)
    await wire.ack(messages[:1], "failed", error="no")
    listed = (await wire.get("/api/v1/resources/queues")).ok()["queues"]
    [found] = [each for each in listed if each["name"] == queue]
    assert found["partitions"] == 2, "the default one and p"
    assert found["messages"] == {
        "total": 3,
        "pending": 2,
        "processing": 0,
        "completed": 0,
        "failed": 0,
        "deadLetter": 1,
    }
    assert found["createdAt"].endswith("Z")


async def test_queues_are_found_by_a_part_of_their_name_and_in_pages(wire: Wire) -> None:
    tag = wire.name("tag")
    for number in range(3):
        await wire.configure(f"{number} {tag}")
    listed = (await wire.get("/api/v1/resources/queues", search=tag)).ok()["queues"]
    assert [each["name"][0] for each in listed] == ["2", "1", "0"], "newest first"
    [second] = (await wire.get("/api/v1/resources/queues", search=tag, limit=1, offset=1)).ok()["queues"]
    assert second["name"] == f"1 {tag}"


async def test_one_queue_is_shown_with_its_partitions(wire: Wire) -> None:
    queue = wire.name()
    configured = await wire.configure(queue, namespace="n", task="t", leaseTime=7)
    partition = wire.name("lane")
    await wire.push(queue, 1, 2, partition=partition)
    [message] = await wire.pop(queue, batch=1)
    found = (await wire.get("/api/v1/resources/queues", queue)).ok()
    assert (found["id"], found["name"]) == (configured["queueId"], queue)
    assert (found["namespace"], found["task"], found["options"]["leaseTime"]) == ("n", "t", 7)
    by_name = {each["name"]: each for each in found["partitions"]}
    other = by_name[partition]
    assert by_name["Default"]["id"] == configured["partitionId"]
    assert by_name["Default"]["oldestMessage"] is None
    assert other["id"] == message["partitionId"]
    assert (other["stats"]["total"], other["stats"]["processing"], other["stats"]["pending"]) == (2, 1, 1)
    assert other["oldestMessage"] == other["newestMessage"] == message["createdAt"]
    assert found["totals"]["total"] == 2
    assert found["next"] is None


async def test_partitions_are_listed_by_name_and_in_pages(wire: Wire) -> None:
    queue = wire.name()
    names = [f"{letter} {queue[-20:]}" for letter in "abc"]
    for name in names:
        await wire.push(queue, 1, partition=name)
    page = (await wire.get("/api/v1/resources/partitions", queue=queue, limit=2)).ok()
    assert [each["name"] for each in page["partitions"]] == names[:2]
    rest = (await wire.get("/api/v1/resources/partitions", queue=queue, limit=2, after=page["next"])).ok()
    assert [each["name"] for each in rest["partitions"]] == names[2:]
    assert rest["next"] is None
    shown = (await wire.get("/api/v1/resources/queues", queue, limit=1)).ok()
    assert shown["next"] == names[0]


async def test_what_is_not_there_is_a_404(wire: Wire) -> None:
    nobody = wire.name("nobody")
    for path, *parts in (
        ("/api/v1/resources/queues", nobody),
        ("/api/v1/resources/queues", nobody, "depth"),
    ):
        assert (await wire.get(path, *parts)).refused(404, "not_found")["error"] == "Queue not found"
    (await wire.get("/api/v1/resources/partitions", queue=nobody)).refused(404, "not_found")
    (await wire.delete("/api/v1/queues", nobody, "clear")).refused(404, "not_found")


async def test_bad_parameters_are_a_400_that_names_them(wire: Wire) -> None:
    for limit in ("0", "-1", "x", "1.5", "99999999999999999999"):
        refused = (await wire.get("/api/v1/resources/queues", limit=limit)).refused(400, "invalid_request")
        assert refused["error"].startswith(f"the parameter limit is '{limit}': ")
    mode = (await wire.get("/api/v1/pop/queue", wire.name(), subscriptionMode="latest")).refused(400)
    assert mode["error"].endswith(": expected one of `all`, `from_beginning`, `new`, `new-only`")
    seek = ("/api/v1/consumer-groups", "g", "queues", wire.name(), "seek")
    assert "Must specify one of" in (await wire.ask("POST", *seek)).refused(400)["error"]
    (await wire.get("/api/v1/resources/partitions")).refused(400, "invalid_request")


async def test_depth_is_told_for_the_queue_and_for_a_group(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, 2, partition="a")
    await wire.push(queue, 3, partition="b")
    group = wire.name("group")
    await wire.ack(await wire.pop(queue, partition="a", consumerGroup=group))
    whole = (await wire.get("/api/v1/resources/queues", queue, "depth")).ok()
    assert (whole["pending"], whole["partitionsPending"], whole["group"]) == (1, 1, None)
    await wire.push(queue, 4, partition="a")
    narrow = (await wire.get("/api/v1/resources/queues", queue, "depth", group=group)).ok()
    assert narrow["partitions"] == [{"partition": "a", "pending": 1}, {"partition": "b", "pending": 1}]
    assert (narrow["pending"], narrow["effectivePending"], narrow["conflation"]) == (2, 2, False)
    (await wire.get("/api/v1/resources/queues", queue, "depth", group="nobody")).refused(404)


async def test_a_queue_is_cleared_whole_or_by_partition(wire: Wire) -> None:
    queue, partition = wire.name(), wire.name("lane")
    await wire.push(queue, 1, 2, partition=partition)
    await wire.push(queue, 3, partition="other")
    cleared = (await wire.delete("/api/v1/queues", queue, "clear", partition=partition)).ok()
    assert cleared == {"success": True, "queue": queue, "partition": partition, "cleared": 2}
    assert [message["data"] for message in await wire.pop(queue, partitions=10)] == [3]
    (await wire.delete("/api/v1/queues", queue, "clear", partition="nobody")).refused(404)
    await wire.push(queue, 4, partition=partition)
    assert (await wire.delete("/api/v1/queues", queue, "clear")).ok()["cleared"] == 2
    assert await wire.pop(queue, partitions=10) == []


async def test_a_deleted_queue_is_gone(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    assert (await wire.delete("/api/v1/resources/queues", queue)).ok() == {
        "deleted": True,
        "queue": queue,
        "existed": True,
    }
    assert (await wire.delete("/api/v1/resources/queues", queue)).ok()["existed"] is False
    assert await wire.pop(queue) == []


async def test_queues_are_summed_up_by_namespace_and_task(wire: Wire) -> None:
    namespace, task = wire.name("namespace"), wire.name("task")
    for number in range(2):
        queue = wire.name()
        await wire.configure(queue, namespace=namespace, task=f"{task} {number}")
        await wire.push(queue, *range(number + 1))
    namespaces = (await wire.get("/api/v1/resources/namespaces")).ok()["namespaces"]
    [found] = [each for each in namespaces if each["namespace"] == namespace]
    assert found == {
        "namespace": namespace,
        "queues": 2,
        "partitions": 2,
        "messages": {"total": 3, "pending": 3},
    }
    tasks = (await wire.get("/api/v1/resources/tasks")).ok()["tasks"]
    [found] = [each for each in tasks if each["task"] == f"{task} 1"]
    assert (found["queues"], found["messages"]["total"]) == (1, 2)


async def test_the_overview_is_there_just_after_the_clock_was_set_forward(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    (await wire.get("/api/v1/resources/overview")).ok()
    monkeypatch.setattr("fairlane.broker.statistics.wall_clock", lambda: wall_clock() + 600_000_000)
    found = (await wire.get("/api/v1/resources/overview")).ok()
    assert found["throughput"] == {"ingestedPerSecond": 0.0, "processedPerSecond": 0.0}


async def test_the_overview_counts_everything(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, 2, 3)
    await wire.ack((await wire.pop(queue))[:1])
    found = (await wire.get("/api/v1/resources/overview")).ok()
    assert found["queues"] >= 1
    assert found["messages"]["total"] >= 3
    assert set(found["lag"]["offset"]) == {"avg", "median", "min", "max"}
    assert found["lag"]["offset"]["max"] >= 2
    assert set(found["throughput"]) == {"ingestedPerSecond", "processedPerSecond"}
