"""The admin API: queues in numbers, and dead letters one by one."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import quote

import pytest

from fairlane.broker import count_cache
from tests.http.test_dead_letters import kill
from tests.http.wire import Wire


async def shown(wire: Wire, queue: str) -> dict[str, Any]:
    queues = (await wire.get("/admin/queues")).ok()["queues"]
    [found] = [one for one in queues if one["name"] == queue]
    return dict(found)


def letters_of(queue: str) -> str:
    return f"/admin/queues/{quote(queue, safe='')}/dlq"


async def test_a_queue_is_shown_with_what_waits_what_is_held_and_what_died(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, 0)
    for n in range(3):
        await wire.push(queue, {"n": n}, partition=f"p{n}")
    await wire.pop(queue, partition="p0")
    found = await shown(wire, queue)
    age, rate = found.pop("oldest_message_age_seconds"), found.pop("messages_per_minute")
    assert 0 <= age < 60
    assert 3 < rate <= 4
    assert found == {"name": queue, "depth": 2, "in_flight": 1, "dead_letters": 1}


async def test_numbers_are_right_at_once_on_a_busy_machine(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = wire.app.broker._engine.store.statistics
    count = statistics.queues

    async def slow(ids: Any) -> Any:
        found = await count(ids)
        await asyncio.sleep(2 * count_cache.CHEAP_SECONDS)
        return found

    monkeypatch.setattr(statistics, "queues", slow)
    queue = wire.name()
    await wire.push(queue, *range(5))
    found = await shown(wire, queue)
    told = [(found["depth"], found["in_flight"])]
    taken = await wire.pop(queue, batch=3)
    found = await shown(wire, queue)
    told.append((found["depth"], found["in_flight"]))
    await wire.ack(taken)
    found = await shown(wire, queue)
    told.append((found["depth"], found["in_flight"]))
    assert told == [(5, 0), (2, 3), (2, 0)]
    assert (await wire.get("/admin/queues")).ok()["stats_age"] >= 0


async def test_a_queue_that_nobody_reads_has_an_age_too_and_an_empty_one_has_none(wire: Wire) -> None:
    unread, empty = wire.name("unread"), wire.name("empty")
    await wire.configure(empty)
    await wire.push(unread, 1)
    assert (await shown(wire, unread))["oldest_message_age_seconds"] >= 0
    assert (await shown(wire, empty)) == {
        "name": empty,
        "depth": 0,
        "in_flight": 0,
        "oldest_message_age_seconds": None,
        "messages_per_minute": 0.0,
        "dead_letters": 0,
    }


async def test_dead_letters_come_page_by_page_each_once(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, *range(5))
    seen, cursor = [], None
    while True:
        query: dict[str, Any] = {"cursor": cursor} if cursor else {}
        page = (await wire.get(letters_of(queue), limit=2, **query)).ok()
        seen += page["dead_letters"]
        cursor = page["next"]
        if cursor is None:
            break
        assert len(page["dead_letters"]) == 2
    assert [letter["preview"] for letter in seen] == [4, 3, 2, 1, 0]
    assert {letter["attempts"] for letter in seen} == {1}
    assert seen[0]["error"] == "4 failed"
    assert abs(seen[0]["failed_at"] - time.time()) < 60, "seconds since 1970"


async def test_a_long_message_is_shortened_in_a_list_and_whole_by_itself(wire: Wire) -> None:
    queue = wire.name()
    short = {"id": 7, "event": {"items": [1, 2]}}
    long = {
        "text": "x" * 1000,
        "ok": True,
        "items": [0.5, None, *range(50)],
        "event": {"id": "P1", "deep": {"a": 1}, "list": [1]},
        **{f"field {n}": n for n in range(50)},
    }
    await kill(wire, queue, short, long, "y" * 1000, {"text": "z" * 100_000})
    letters = (await wire.get(letters_of(queue))).ok()["dead_letters"]
    huge, text, preview, whole = [letter["preview"] for letter in letters]
    assert whole == short
    assert preview["text"] == "x" * 80 + "..."
    assert (preview["ok"], preview["items"][:3], preview["items"][-1]) == (True, [0.5, None, 0], "...")
    assert preview["event"] == {"id": "P1", "deep": "{...}", "list": "[...]"}
    assert (preview["field 0"], preview["..."], len(preview)) == (0, "34 more fields", 21)
    assert text == "y" * 80 + "..."
    assert huge == '{"text":"' + "z" * 71 + "...", "too large to take apart for a list"
    path = f"{letters_of(queue)}/{letters[2]['id']}"
    whole = (await wire.get(path)).ok()
    assert whole["data"] == long
    assert whole["replay_result"] is None
    assert (whole["replayed_at"], whole["new_message_id"], whole["consumer_group"]) == (None, None, "__QUEUE_MODE__")


async def test_a_letter_is_replayed_once_and_the_same_is_answered_again(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, {"n": 1})
    [letter] = (await wire.get(letters_of(queue))).ok()["dead_letters"]
    path = f"{letters_of(queue)}/{letter['id']}"
    first = (await wire.post(f"{path}/replay")).ok()
    assert first == {"ok": True, "new_message_id": first["new_message_id"]}
    assert (await wire.post(f"{path}/replay")).ok() == first
    [popped] = await wire.pop(queue)
    assert (popped["id"], popped["data"]) == (first["new_message_id"], {"n": 1})
    assert (await wire.get(path)).ok()["new_message_id"] == first["new_message_id"]
    assert (await shown(wire, queue))["dead_letters"] == 0


async def test_a_letter_that_was_replayed_has_the_result_of_that(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0)
    await kill(wire, queue, 1, 2)
    failed, done = (await wire.get(letters_of(queue))).ok()["dead_letters"]
    paths = [f"{letters_of(queue)}/{letter['id']}" for letter in (done, failed)]

    async def result(path: str) -> Any:
        return (await wire.get(path)).ok()["replay_result"]

    for path in paths:
        (await wire.post(f"{path}/replay")).ok()
        assert await result(path) == {"status": "pending", "result": None, "error": None}
    [message] = await wire.pop(queue, batch=1)
    assert (await result(paths[0]))["status"] == "processing"
    await wire.ack([message], result={"ticket": 7})
    assert await result(paths[0]) == {"status": "completed", "result": {"ticket": 7}, "error": None}
    await wire.ack(await wire.pop(queue), "failed", error="still broken")
    assert await result(paths[1]) == {"status": "dead_letter", "result": None, "error": "still broken"}


async def test_letters_are_listed_replayed_and_purged_by_partition_and_error(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, 1, 2, partition="a")
    await kill(wire, queue, 3, 4, partition="b", group="g")
    path = letters_of(queue)

    async def listed(**query: Any) -> list[Any]:
        return [letter["preview"] for letter in (await wire.get(path, **query)).ok()["dead_letters"]]

    assert await listed(partition="a") == [2, 1]
    assert await listed(error="3 fail") == [3]
    assert await listed(consumer_group="g") == [4, 3]
    assert await listed(partition="nowhere") == []
    assert await listed(partition="b", error="1 failed") == []
    [only] = (await wire.get(path, error="2 failed")).ok()["dead_letters"]
    exactly = {"failed_from": repr(only["failed_at"]), "failed_until": repr(only["failed_at"])}
    assert 2 in await listed(**exactly), "both ends are within"
    replayed = (await wire.post(f"{path}/replay", body={"partition": "a", "error": "2"})).ok()["replayed"]
    assert [one["id"] for one in replayed] == [only["id"]]
    assert (await wire.post(f"{path}/replay", body={"partition": "nowhere"})).ok()["replayed"] == []
    assert (await wire.delete(path, partition="b", error="4")).ok()["purged"] == 1
    assert sorted(await listed()) == [1, 2, 3]


async def test_many_are_replayed_and_purged_by_what_they_have_in_common(wire: Wire) -> None:
    queue = wire.name()
    await kill(wire, queue, 1, 2, group="a")
    await kill(wire, queue, 3, group="b")
    path = letters_of(queue)
    assert (await wire.post(f"{path}/replay", body={"failed_until": 1})).ok() == {"ok": True, "replayed": []}
    replayed = (await wire.post(f"{path}/replay", body={"consumer_group": "a"})).ok()["replayed"]
    assert len({one["id"] for one in replayed}) == 2
    assert (await wire.delete(path, failed_until=1)).ok() == {"ok": True, "purged": 0}
    assert (await wire.delete(path, consumer_group="a")).ok() == {"ok": True, "purged": 2}
    [left] = (await wire.get(path)).ok()["dead_letters"]
    assert (await wire.delete(f"{path}/{left['id']}")).ok() == {"ok": True}
    (await wire.delete(f"{path}/{left['id']}")).refused(404)
    assert (await wire.get(path)).ok() == {"dead_letters": [], "next": None}


async def test_what_is_not_there_is_a_404_and_what_makes_no_sense_a_400(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue)
    path = letters_of(queue)
    nobody = letters_of(wire.name("nobody"))
    (await wire.get(nobody)).refused(404)
    (await wire.post(f"{nobody}/replay", body={})).refused(404)
    (await wire.delete(nobody)).refused(404)
    for id in ("0-1-1-0", "x", "1"):
        (await wire.get(f"{path}/{id}")).refused(404)
        (await wire.post(f"{path}/{id}/replay")).refused(404)
        (await wire.delete(f"{path}/{id}")).refused(404)
    for cursor in ("x", "1", "_", "-1_a", "1" * 30 + "_a"):
        (await wire.get(path, cursor=cursor)).refused(400)
    (await wire.delete(path, failed_from="inf")).refused(400)


@pytest.mark.parametrize("body", [{"failed_from": "x"}, {"ids": "x"}, {"ids": [""]}, []])
async def test_a_filter_that_is_none_is_refused(wire: Wire, body: Any) -> None:
    queue = wire.name()
    await wire.configure(queue)
    (await wire.post(f"{letters_of(queue)}/replay", body=body)).refused(400)
