"""Acks over HTTP: one message, or many."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.http.wire import Wire


async def popped(wire: Wire, count: int) -> tuple[str, list[Any]]:
    queue = wire.name()
    await wire.push(queue, *range(count))
    return queue, await wire.pop(queue)


async def single(wire: Wire, message: Any, **more: Any) -> Any:
    body = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")} | more
    [element] = (await wire.post("/api/v1/ack", body=body)).ok()
    return element


async def left(wire: Wire, queue: str, lease: str) -> list[Any]:
    """Release the lease and return what is delivered again."""
    (await wire.post("/api/v1/lease", lease, "release")).ok()
    found = []
    while messages := await wire.pop(queue):
        found += [message["data"] for message in messages]
        await wire.ack(messages)
    return found


@pytest.mark.parametrize("cumulative", [None, True, False])
async def test_a_single_ack_on_the_wire_finishes_what_is_before_it_unless_told_otherwise(
    wire: Wire, cumulative: bool | None
) -> None:
    queue, messages = await popped(wire, 4)
    more = {} if cumulative is None else {"cumulative": cumulative}
    assert (await single(wire, messages[2], **more))["success"]
    expected = [0, 1, 3] if cumulative is False else [3]
    assert await left(wire, queue, messages[0]["leaseId"]) == expected


async def test_a_batch_of_acks_finishes_what_it_names(wire: Wire) -> None:
    queue, messages = await popped(wire, 4)
    assert all(element["success"] for element in await wire.ack([messages[0], messages[2]]))
    assert await left(wire, queue, messages[0]["leaseId"]) == [1, 3]


async def test_an_item_of_a_batch_may_speak_for_those_before_it(wire: Wire) -> None:
    queue, messages = await popped(wire, 4)
    await wire.ack([messages[2]], cumulative=True)
    assert await left(wire, queue, messages[0]["leaseId"]) == [3]


async def test_an_ack_without_a_lease_on_the_wire_finishes_its_message_alone(wire: Wire) -> None:
    queue, messages = await popped(wire, 3)
    [waiting] = await wire.push(queue, "waiting")
    assert (await single(wire, messages[1], leaseId=None))["success"]
    other = {**messages[0], "transactionId": waiting["transaction_id"], "leaseId": None}
    refused = await single(wire, other)
    assert (refused["success"], refused["code"]) == (False, "not_delivered")
    assert "not delivered yet" in refused["error"]
    assert await left(wire, queue, messages[0]["leaseId"]) == [0, 2, "waiting"]


@pytest.mark.parametrize("order", ["as given", "backwards", "one twice", "a stranger among them", "after the lease"])
async def test_a_whole_batch_is_answered_as_its_messages_one_by_one(wire: Wire, order: str) -> None:
    """The usual ack of a whole lease takes a fast path, with the same answer."""
    answers = []
    for more in ({}, {"status": "success"}):  # the second one does not take the fast path
        _, messages = await popped(wire, 4)
        match order:
            case "backwards":
                messages.reverse()
            case "one twice":
                messages.insert(2, messages[1])
            case "a stranger among them":
                messages[2] = messages[2] | {"transactionId": 'no"body'}
            case "after the lease":
                await wire.ack(messages)
        found = await wire.ack(messages, **more)
        assert [one["transactionId"] for one in found] == [message["transactionId"] for message in messages]
        for element in found:
            del element["transactionId"], element["queueName"]
        answers.append(found)
    assert answers[0] == answers[1]


async def test_ids_that_need_quoting_come_back_as_they_were(wire: Wire) -> None:
    queue, ids = wire.name(), ['a"b', "back\\slash", "名前", "plain"]
    items = [{"queue": queue, "payload": id, "transactionId": id} for id in ids]
    (await wire.post("/api/v1/push", body={"items": items})).ok(201)
    assert [element["transactionId"] for element in await wire.ack(await wire.pop(queue))] == ids


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_pop_tells_positions_and_acks_may_name_them(wire: Wire, ordering: str) -> None:
    queue = wire.name()
    await wire.configure(queue, ordering=ordering)
    await wire.push(queue, *range(4))
    messages = await wire.pop(queue)
    assert [message["position"] for message in messages] == [0, 1, 2, 3]
    acks = [
        {key: message[key] for key in ("transactionId", "partitionId", "leaseId", "position")}
        for message in messages[1:3]
    ]
    elements = (await wire.post("/api/v1/ack/batch", body={"acknowledgments": acks})).ok()
    assert [element["transactionId"] for element in elements] == [ack["transactionId"] for ack in acks]
    assert all(element["success"] for element in elements)
    assert (await single(wire, messages[1], position=1, cumulative=False))["noop"]
    assert await left(wire, queue, messages[0]["leaseId"]) == [0, 3]


async def test_a_position_outside_the_lease_is_not_resolved(wire: Wire) -> None:
    queue, messages = await popped(wire, 2)
    element = await single(wire, messages[0], position=7)
    assert (element["success"], element["code"]) == (False, "unresolvable")
    body = {key: messages[0][key] for key in ("transactionId", "partitionId", "leaseId")} | {"position": -1}
    (await wire.post("/api/v1/ack", body=body)).refused(400)
    assert await left(wire, queue, messages[0]["leaseId"]) == [0, 1]


async def test_a_message_may_have_attempts_of_its_own(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, ids=["one"], maxAttempts=1)
    await wire.push(queue, 2)
    [first, _] = popped = await wire.pop(queue)
    assert first["maxAttempts"] == 1
    assert "maxAttempts" not in popped[1]
    [answer] = await wire.ack([first], "failed")
    assert answer["dlq"]
    for wrong in (0, -1, "1", 1.5, 10**6):
        body = {"items": [{"queue": queue, "payload": 1, "maxAttempts": wrong}]}
        (await wire.post("/api/v1/push", body=body)).refused(400)


async def of_lanes(wire: Wire, lanes: str, each: int = 3) -> tuple[str, list[Any]]:
    queue = wire.name()
    for lane in lanes:
        await wire.push(queue, *[f"{lane}{n}" for n in range(each)], partition=lane)
    messages = await wire.pop(queue, partitions=len(lanes))
    assert len(messages) == each * len(lanes)
    return queue, messages


@pytest.mark.parametrize("order", ["lane by lane", "in turn", "some of each"])
async def test_acks_of_many_lanes_at_once_are_answered_each_with_its_own_lane(wire: Wire, order: str) -> None:
    queue, messages = await of_lanes(wire, "abc")
    if order == "in turn":
        messages.sort(key=lambda message: message["position"])
    elif order == "some of each":
        messages = [message for message in messages if message["position"] < 2]
    elements = await wire.ack(messages)
    assert elements == [
        {
            "index": index,
            "transactionId": message["transactionId"],
            "success": True,
            "error": None,
            "queueName": queue,
            "partitionName": message["partition"],
            "leaseReleased": order != "some of each",
            "dlq": False,
        }
        for index, message in enumerate(messages)
    ]
    again = [] if order != "some of each" else ["a2", "b2", "c2"]
    assert sorted(await left(wire, queue, messages[0]["leaseId"])) == again


async def test_a_lane_whose_lease_ended_fails_alone_among_acks_of_many_lanes(wire: Wire) -> None:
    queue, messages = await of_lanes(wire, "abc")
    lost = [message for message in messages if message["partition"] == "b"]
    await wire.ack(lost)
    stale = [
        {**message, "leaseId": message["leaseId"][:-1] + "x"} if message in lost else message for message in messages
    ]
    elements = await wire.ack(stale)
    assert [(element["transactionId"], element["success"]) for element in elements] == [
        (message["transactionId"], message not in lost) for message in messages
    ]
    assert await left(wire, queue, messages[0]["leaseId"]) == []


async def test_ids_of_producers_come_back_as_they_were_sent_beside_those_of_the_broker(wire: Wire) -> None:
    queue = wire.name()
    ids = ["plain", 'with "quotes"', "back\\slash", "ünïcode", "tab\there"]
    for some in (ids[:1], ids):
        some = [f"{id} {len(some)}" for id in some]
        items = [{"queue": queue, "payload": 1, "transactionId": id} for id in some] + [{"queue": queue, "payload": 2}]
        elements = (await wire.post("/api/v1/push", body={"items": items})).ok(201)
        assert [element["transaction_id"] for element in elements[:-1]] == some
        assert elements[-1]["transaction_id"] == elements[-1]["message_id"]
        assert [element["index"] for element in elements] == list(range(len(items)))


@pytest.mark.parametrize("partition", ["", "nonsense"])
async def test_an_ack_of_no_partition_is_refused_also_behind_good_ones(wire: Wire, partition: str) -> None:
    _, messages = await popped(wire, 1)
    good = {key: messages[0][key] for key in ("transactionId", "partitionId", "leaseId")}
    for acks in (
        [{"transactionId": "x", "partitionId": partition}],
        [good, {"transactionId": "x", "partitionId": partition}],
    ):
        problem = (await wire.post("/api/v1/ack/batch", body={"acknowledgments": acks})).refused(400)
        assert f"acknowledgments[{len(acks) - 1}]" in problem["error"]


def row(messages: list[Any], **more: Any) -> dict[str, Any]:
    """Return an ack of consecutive messages."""
    where = {key: messages[0][key] for key in ("partitionId", "leaseId", "position")}
    return where | {"transactionId": "", "count": len(messages)} | more


async def ack_rows(wire: Wire, *rows: dict[str, Any]) -> Any:
    return await wire.post("/api/v1/ack/batch", body={"acknowledgments": list(rows)})


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_one_ack_finishes_messages_in_a_row(wire: Wire, ordering: str) -> None:
    queue = wire.name()
    await wire.configure(queue, ordering=ordering)
    await wire.push(queue, *range(6))
    messages = await wire.pop(queue)
    [element] = (await ack_rows(wire, row(messages[1:4]))).ok()
    assert (element["index"], element["count"], element["success"]) == (0, 3, True)
    assert await left(wire, queue, messages[0]["leaseId"]) == [0, 4, 5]


async def test_acks_of_rows_of_several_lanes_are_told_lane_by_lane(wire: Wire) -> None:
    queue = wire.name()
    for partition in "abc":
        await wire.push(queue, *range(3), partition=partition)
    messages = await wire.pop(queue, partitions=3)
    lanes = [messages[at : at + 3] for at in (0, 3, 6)]
    told = (await ack_rows(wire, *map(row, lanes))).ok()
    assert [(one["index"], one["count"], one["leaseReleased"]) for one in told] == [
        (0, 3, True),
        (3, 3, True),
        (6, 3, True),
    ]
    assert [one["partitionName"] for one in told] == [lane[0]["partition"] for lane in lanes]
    assert not await wire.pop(queue)


@pytest.mark.parametrize("rows_first", [True, False])
@pytest.mark.parametrize("located", [True, False])
async def test_rows_and_acks_by_id_in_one_batch_are_told_of_each_message(
    wire: Wire, rows_first: bool, located: bool
) -> None:
    """Acks by id may have a position or not."""
    queue = wire.name()
    for partition, count in (("a", 3), ("b", 2), ("c", 1)):
        await wire.push(queue, *range(count), partition=partition)
    messages = await wire.pop(queue, partitions=3)
    lanes = [[one for one in messages if one["partition"] == partition] for partition in "abc"]
    keys = ["transactionId", "partitionId", "leaseId"] + ["position"] * located
    by_id = [{key: message[key] for key in keys} for message in lanes[1]]
    acks = [row(lanes[0]), *by_id] if rows_first else [*by_id, row(lanes[0])]
    told = (await ack_rows(wire, *acks, row(lanes[2]))).ok()
    named: dict[int, Any] = {}
    for one in told:
        named |= dict.fromkeys(range(one["index"], one["index"] + one.get("count", 1)), one)
        assert one["success"]
        assert one["partitionName"] in "abc"
    assert list(named) == list(range(6))
    ids = [named[index]["transactionId"] for index in ((3, 4) if rows_first else (0, 1))]
    assert ids == [message["transactionId"] for message in lanes[1]]
    assert not await wire.pop(queue)


async def test_messages_of_a_row_that_came_to_different_ends_are_told_one_by_one(wire: Wire) -> None:
    queue, messages = await popped(wire, 4)
    await wire.ack(messages[:2])
    told = (await ack_rows(wire, row(messages))).ok()
    assert [(one["index"], one["success"], one.get("noop", False)) for one in told] == [
        (0, True, True),
        (1, True, True),
        (2, True, False),
        (3, True, False),
    ]
    assert not await wire.pop(queue)


async def test_a_row_finishes_nothing_that_its_lease_was_not_given(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, *range(6))
    messages = await wire.pop(queue, batch=3)
    told = (await ack_rows(wire, row(messages, count=6))).ok()
    assert [one["success"] for one in told for _ in range(one.get("count", 1))] == [True] * 3 + [False] * 3
    assert {one["code"] for one in told if not one["success"]} == {"unresolvable"}
    assert [message["data"] for message in await wire.pop(queue)] == [3, 4, 5]


async def test_a_row_of_a_lease_that_ended_is_told_so(wire: Wire) -> None:
    queue, messages = await popped(wire, 3)
    (await wire.post("/api/v1/lease", messages[0]["leaseId"], "release")).ok()
    told = (await ack_rows(wire, row(messages))).ok()
    assert {one["code"] for one in told} == {"lease_lost"}
    assert [message["data"] for message in await wire.pop(queue)] == [0, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": 10_001},
        {"count": "3"},
        {"position": None},
        {"position": -1},
        {"position": 2**63 - 2},
        {"leaseId": None},
        {"status": "failed"},
        {"status": None},
        {"result": {"a": 1}},
        {"error": "why"},
        {"delayMs": 5},
        {"partitionId": ""},
    ],
)
async def test_a_row_that_means_nothing_is_refused_and_finishes_nothing(wire: Wire, wrong: dict[str, Any]) -> None:
    queue, messages = await popped(wire, 3)
    (await ack_rows(wire, row(messages[:1]) | {"count": 1}, row(messages[1:], **wrong))).refused(400)
    assert await left(wire, queue, messages[0]["leaseId"]) == [0, 1, 2]


async def test_rows_have_as_many_messages_together_as_an_ack_may(wire: Wire) -> None:
    _, messages = await popped(wire, 3)
    answer = await ack_rows(wire, *[row(messages, count=4_000)] * 3)
    assert "12000" in answer.refused(400)["error"]


async def test_a_single_ack_is_about_one_message(wire: Wire) -> None:
    _, messages = await popped(wire, 3)
    body = {key: messages[0][key] for key in ("transactionId", "partitionId", "leaseId", "position")} | {"count": 2}
    assert "count" in (await wire.post("/api/v1/ack", body=body)).refused(400)["error"]


async def test_a_pop_by_lane_says_once_what_the_messages_of_a_lane_share(wire: Wire) -> None:
    queue = wire.name()
    for partition in ("a", "b"):
        await wire.push(queue, *range(2), partition=partition)
        await wire.push(queue, 2, partition=partition)
    usual = (await wire.get("/api/v1/pop/queue", queue, batch=100, partitions=2, consumerGroup="usual")).ok()
    asked: dict[str, Any] = {"batch": 100, "partitions": 2, "consumerGroup": "g", "byLane": "true"}
    answer = (await wire.get("/api/v1/pop/queue", queue, **asked)).ok()
    assert (answer["queue"], answer["consumerGroup"], answer["ordered"]) == (queue, "g", True)
    assert "messages" not in answer
    assert {lane["partition"] for lane in answer["lanes"]} == {"a", "b"}
    for lane in answer["lanes"]:
        assert (lane["first"], [count for count, _ in lane["createdAt"]]) == (0, [2, 1])
        assert [message["data"] for message in lane["messages"]] == [0, 1, 2]
        others = [message for message in usual["messages"] if message["partition"] == lane["partition"]]
        assert [message["id"] for message in lane["messages"]] == [message["id"] for message in others]
        assert {message["partitionId"] for message in others} == {lane["partitionId"]}
    rows = [
        {"partitionId": lane["partitionId"], "leaseId": answer["leaseId"], "position": lane["first"], "count": 3}
        for lane in answer["lanes"]
    ]
    body = {"acknowledgments": [one | {"transactionId": ""} for one in rows], "consumerGroup": "g"}
    told = (await wire.post("/api/v1/ack/batch", body=body)).ok()
    assert [(one["success"], one["leaseReleased"]) for one in told] == [(True, True)] * 2
    assert (await wire.get("/api/v1/pop/queue", queue, **asked)).status == 204


async def test_a_pop_by_lane_tells_of_failed_attempts(wire: Wire) -> None:
    queue, messages = await popped(wire, 2)
    await wire.ack(messages[:1], "failed")
    answer = (await wire.get("/api/v1/pop/queue", queue, batch=10, byLane="true")).ok()
    [lane] = answer["lanes"]
    assert (lane["failedAttempts"], lane["messages"][0]["data"]) == (1, 0)


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_popped_messages_tell_their_retries_and_their_priority(wire: Wire, ordering: str) -> None:
    queue = wire.name()
    await wire.configure(queue, ordering=ordering)
    trap = {"retryCount": 7, "priority": 3, "text": ',"traceId":null,"priority":3,"retryCount":0,'}
    items = [{"queue": queue, "payload": trap}, {"queue": queue, "payload": 1, "traceId": str(uuid4())}]
    items += [{"queue": queue, "payload": 2, "priority": 9, "maxAttempts": 9}]
    (await wire.post("/api/v1/push", body={"items": items})).ok(201)

    async def popped() -> list[Any]:
        return sorted(await wire.pop(queue, partitions=9), key=lambda one: str(one["data"]))

    first = await popped()
    assert [(one["data"], one["retryCount"], one["priority"]) for one in first] == [(1, 0, 0), (2, 0, 9), (trap, 0, 0)]
    failed = next(one for one in first if one["data"] == (2 if ordering == "unordered" else trap))
    await wire.ack([failed], status="failed", error="no")
    again = next(one for one in await popped() if one["data"] == failed["data"])
    assert (again["retryCount"], again["priority"]) == (1, failed["priority"])
    assert again["data"] == failed["data"]
