"""What happened lately, and queues by it."""

from __future__ import annotations

from tests.http.wire import Wire
from tests.until import until

COLUMNS = ("pushed", "popped", "acked", "failed", "dead", "depth", "oldestSeconds")
LATENCIES = tuple(f"{verb}{share}Ms" for verb in ("push", "pop", "ack") for share in ("P50", "P99"))


async def test_what_happened_is_told_by_second_and_by_minute(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, *range(10))
    taken = await wire.pop(queue, batch=4)
    await wire.ack(taken)
    await wire.get("/api/v1/resources/overview")

    async def seconds() -> dict[str, list[float]] | None:
        found: dict[str, list[float]] = (await wire.get("/api/v1/history", minutes=5)).ok()
        return found if sum(value or 0 for value in found["acked"]) == 4 else None

    found = await until(seconds)
    assert found["stepSeconds"] == 1
    assert {len(found[name]) for name in (*COLUMNS, *LATENCIES)} == {300}
    assert sum(value or 0 for value in found["pushed"]) == 10
    assert sum(value or 0 for value in found["popped"]) == 4
    assert sum(value or 0 for value in found["acked"]) == 4
    assert found["pushed"][0] is None, "the broker did not run then"
    assert any(found["pushP99Ms"])
    counted = [value for value in found["depth"] if value is not None]
    assert counted
    assert min(counted) >= 6, "of all queues of the store"
    minutes = (await wire.get("/api/v1/history", minutes=60)).ok()
    assert (minutes["stepSeconds"], len(minutes["pushed"])) == (60, 60)


async def test_a_queue_has_a_history_of_its_own(wire: Wire) -> None:
    queue, other = wire.name(), wire.name()
    await wire.push(queue, 1, 2, 3)
    await wire.push(other, 1)

    async def counted() -> float:
        found = (await wire.get("/api/v1/history", minutes=5, queue=queue)).ok()
        assert (found["queue"], found["stepSeconds"], len(found["pushed"])) == (queue, 5, 60)
        return sum(value or 0 for value in found["pushed"]) * 5

    assert round(await until(counted)) == 3
    (await wire.get("/api/v1/history", queue="none")).refused(404)
    (await wire.get("/api/v1/history", minutes=0)).refused(400)


async def test_queues_are_sorted_and_paged_on_the_server(wire: Wire) -> None:
    mark = wire.name("mark")
    names = [f"{mark} {letter}" for letter in "bca"]
    for count, name in enumerate(names, 1):
        await wire.push(name, *range(count))
    await wire.pop(names[0], consumerGroup="g", batch=1)
    (await wire.post("/api/v1/queues", names[1], "pause", body={})).ok()

    async def listed(**query: object) -> list[str]:
        found = (await wire.get("/api/v1/resources/queues", search=mark, **query)).ok()
        assert found["total"] == 3
        return [one["name"][-1] for one in found["queues"]]

    assert await listed() == ["a", "c", "b"]
    assert await listed(sort="name") == ["a", "b", "c"]
    assert await listed(sort="name", order="desc") == ["c", "b", "a"]
    assert await listed(sort="pending") == ["a", "c", "b"]
    assert await listed(sort="pending", order="asc", limit=1, offset=1) == ["c"]
    assert (await listed(sort="oldest"))[0] == "b", "only it has a reader that is behind"
    assert len(await listed(sort="deadLetters")) == 3
    (await wire.get("/api/v1/resources/queues", sort="size")).refused(400)
    found = (await wire.get("/api/v1/resources/queues", search=mark)).ok()["queues"]
    assert [one["paused"] for one in found] == [False, True, False]
    assert [one["oldestAt"] is None for one in found] == [True, True, False]
    assert {len(one["spark"]) for one in found} == {60}

    async def busiest() -> bool:
        found = (await wire.get("/api/v1/resources/queues", search=mark, sort="rate")).ok()["queues"]
        return bool(found[0]["rates"]["pushed"] == 0.3 and sum(found[0]["spark"]) * 5 == 3.0)

    await until(busiest)
