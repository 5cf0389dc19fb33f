"""Streams over queues that a caller may not read."""

from __future__ import annotations

from tests.http.test_foreign_objects import World, world

__all__ = ["world"]


async def test_a_stream_is_used_by_whoever_may_read_its_source(world: World) -> None:
    cases = world.cases()
    for route in ("POST /streams/v1/queries", "POST /streams/v1/state/get", "POST /streams/v1/cycle"):
        refused = await world.narrow.ask("POST", *cases[route])
        assert f"pop:{world.narrow.theirs}" in refused.refused(403, "forbidden")["error"]
    own = {"name": f"own-{world.at}", "source_queue": world.narrow.mine, "config_hash": "x"}
    state = {"query_id": (await world.narrow.ask("POST", "/streams/v1/queries", own)).ok()["query_id"]}
    state["partition_id"] = world.mine["partitionId"]
    (await world.narrow.ask("POST", "/streams/v1/state/get", state)).ok()
    (await world.narrow.ask("POST", "/streams/v1/queries", own | {"config_hash": "y", "reset": True})).ok()
