"""Leases and utilisation over HTTP."""

from __future__ import annotations

from tests.http.wire import Wire


async def test_live_leases_are_listed_with_who_holds_them_and_for_how_long(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    await wire.configure(queue, leaseTime=600)
    await wire.push(queue, 1, 2, 3, partition="a")
    [first, second] = await wire.pop(queue, batch=2, consumerGroup=group)
    await wire.ack([first])
    [lease] = (await wire.get("/api/v1/leases", queue=queue)).ok()["leases"]
    assert (lease["leaseId"], lease["partitionId"]) == (second["leaseId"], second["partitionId"])
    assert (lease["queue"], lease["partition"], lease["consumerGroup"]) == (queue, "a", group)
    assert (lease["messages"], lease["completed"]) == (2, 1)
    assert 0 <= lease["secondsHeld"] < 60
    assert 500 < lease["secondsRemaining"] <= 600
    assert (await wire.get("/api/v1/leases", queue=queue, endingWithin=30)).ok()["leases"] == []
    assert (await wire.get("/api/v1/leases", queue=queue, consumerGroup="other")).ok()["leases"] == []
    (await wire.get("/api/v1/leases", endingWithin=0)).refused(400)


async def test_utilisation_tells_what_is_held_and_what_room_is_left(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, maxSize=10)
    for partition in ("a", "b", "c", "d"):
        await wire.push(queue, 1, partition=partition)
    await wire.pop(queue, batch=1)
    use = (await wire.get("/api/v1/queues", queue, "utilisation")).ok()
    assert (use["depth"], use["capacity"], use["remaining"]) == (4, 10, 6)
    [own] = use["groups"]
    assert (own["partitionsWithMessages"], own["partitionsLeased"], own["messagesLeased"]) == (4, 1, 1)
    assert own["utilisation"] == 0.25
    (await wire.get("/api/v1/queues", wire.name("nobody"), "utilisation")).refused(404)
