"""Lanes and their states over HTTP, and messages by their positions."""

from __future__ import annotations

from typing import Any

from tests.http.wire import Wire


async def lanes(wire: Wire, queue: str, **query: Any) -> Any:
    return (await wire.get("/api/v1/queues", queue, "lanes", **query)).ok()


async def test_a_lane_is_shown_with_its_state(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, onExhausted="block")
    for partition in ("blocked", "finished", "leased", "paused", "waiting"):
        await wire.push(queue, 1, 2, partition=partition)
    await wire.ack(await wire.pop(queue, partition="finished", batch=2))
    await wire.ack(await wire.pop(queue, partition="blocked", batch=1), status="failed", error="no way")
    await wire.pop(queue, partition="leased", batch=1)
    (await wire.post("/api/v1/queues", queue, "pause", body={"partition": "paused"})).ok()
    found = {one["partition"]: one for one in (await lanes(wire, queue))["lanes"]}
    found.pop("Default", None)
    assert {name: one["state"] for name, one in found.items()} == {name: name for name in found}
    assert len(found) == 5
    blocked, leased = found["blocked"], found["leased"]
    assert (blocked["failures"], blocked["error"], blocked["waiting"], blocked["committed"]) == (1, "no way", 2, 0)
    assert (leased["committed"], leased["leasedTo"], leased["head"], leased["start"]) == (0, 1, 2, 0)
    assert leased["leaseEndsAt"] is not None
    assert found["finished"]["oldestAt"] is None
    assert (await wire.get("/api/v1/queues", queue, "lanes", "blocked")).ok() == blocked


async def test_lanes_come_page_by_page_by_state_and_by_name(wire: Wire) -> None:
    queue = wire.name()
    for n in range(7):
        await wire.push(queue, n, partition=f"lane-{n}")
    await wire.ack(await wire.pop(queue, partition="lane-3"))
    seen: list[str] = []
    after = ""
    while after is not None:
        page = await lanes(wire, queue, limit=3, after=after)
        assert len(page["lanes"]) <= 3
        assert page["complete"] is True
        seen += [one["partition"] for one in page["lanes"]]
        after = page["next"]
    assert seen == sorted({*seen})
    assert {f"lane-{n}" for n in range(7)} <= {*seen}

    async def names(**query: Any) -> list[str]:
        return [one["partition"] for one in (await lanes(wire, queue, **query))["lanes"]]

    assert await names(state="waiting") == [f"lane-{n}" for n in range(7) if n != 3]
    assert await names(state="unfinished") == await names(state="waiting")
    assert await names(search="ne-5") == ["lane-5"]
    assert await names(search="lane-3") == ["lane-3"]
    assert await names(search="lane-3", state="blocked") == []
    await wire.push(queue, 1, partition="a lane-3 too")
    assert await names(search="lane-3") == ["lane-3", "a lane-3 too"], "the whole name comes first"


async def test_a_lane_that_is_not_there_is_not_found(wire: Wire) -> None:
    queue = wire.name()
    (await wire.get("/api/v1/queues", queue, "lanes")).refused(404)
    await wire.push(queue, 1, partition="a")
    await wire.pop(queue)
    (await wire.get("/api/v1/queues", queue, "lanes", "b")).refused(404)
    (await wire.get("/api/v1/queues", queue, "lanes", group=wire.name("group"))).refused(404)
    (await wire.get("/api/v1/queues", queue, "lanes", state="sleepy")).refused(400)


async def test_messages_are_found_by_their_positions(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, *range(10), partition="a")
    await wire.push(queue, "other", partition="b")

    async def positions(**query: Any) -> list[int]:
        page = (await wire.get("/api/v1/messages", queue=queue, **query)).ok()
        assert {one["partition"] for one in page["messages"]} <= {"a"}
        return sorted(one["position"] for one in page["messages"])

    assert await positions(partition="a", position=3, limit=4) == [3, 4, 5, 6]
    assert await positions(partition="a", position=0, limit=2) == [0, 1]
    assert await positions(partition="a", position=8, limit=5) == [8, 9]
    assert await positions(partition="a", position=10, limit=5) == []
    (await wire.get("/api/v1/messages", queue=queue, position=3)).refused(400)
    (await wire.get("/api/v1/messages", queue=queue, partition="c", position=3)).refused(404)


async def test_names_that_begin_as_searched_come_first_and_none_twice(wire: Wire) -> None:
    queue = wire.name()
    for name in ("a-lane-1", "lane-0", "lane-1", "lane-10", "lane-11", "lane-12", "my lane-1", "z-lane-1"):
        await wire.push(queue, 1, partition=name)
    await wire.pop(queue, partition="lane-0")
    for limit in (1, 2, 3, 50):
        seen: list[str] = []
        after = ""
        while after is not None and len(seen) < 20:
            page = await lanes(wire, queue, search="lane-1", limit=limit, after=after)
            seen += [one["partition"] for one in page["lanes"]]
            after = page["next"]
        assert seen == ["lane-1", "lane-10", "lane-11", "lane-12", "a-lane-1", "my lane-1", "z-lane-1"]


async def test_the_most_urgent_lanes_are_those_that_stopped_then_those_ready_longest(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, onExhausted="block")
    for n in range(6):
        await wire.push(queue, n, partition=f"lane-{n}")
    await wire.ack(await wire.pop(queue, partition="lane-1"))
    await wire.ack(await wire.pop(queue, partition="lane-4", batch=1), status="failed", error="no way")
    page = await lanes(wire, queue, sort="urgent")
    assert [one["partition"] for one in page["lanes"]] == ["lane-4", "lane-0", "lane-2", "lane-3", "lane-5"]
    assert page["lanes"][0]["state"] == "blocked"
    assert (page["complete"], page["next"]) == (True, None)
    first = await lanes(wire, queue, sort="urgent", limit=2)
    assert [one["partition"] for one in first["lanes"]] == ["lane-4", "lane-0"]
    assert first["complete"] is False
    (await wire.get("/api/v1/queues", queue, "lanes", sort="urgent", search="lane")).refused(400)
