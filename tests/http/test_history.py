"""The history of rates, and queues sorted by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import Broker
from fairlane.broker.services.history_recorder import HistoryRecorder
from fairlane.model.moment import Moment
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.peer_processes import PeerProcesses
from tests.conformance.backends import Backend, PostgresBackend, SqliteBackend
from tests.conformance.configurations import Configuration
from tests.http.test_webhooks import BODY, SECRET, Inbox, headers_of
from tests.http.wire import Wire, serving
from tests.postgres import PostgresServer
from tests.queen_package import INSTALLED
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
        """Wait until the seconds of the ack and of the count are over."""
        found: dict[str, list[float]] = (await wire.get("/api/v1/history", minutes=5)).ok()
        return found if sum(value or 0 for value in found["acked"]) == 4 and any(found["depth"]) else None

    found = await until(seconds)
    assert found["stepSeconds"] == 1
    assert {len(found[name]) for name in (*COLUMNS, *LATENCIES)} == {300}
    assert sum(value or 0 for value in found["pushed"]) == 10
    assert sum(value or 0 for value in found["popped"]) == 4
    assert sum(value or 0 for value in found["acked"]) == 4
    assert found["pushed"][0] is None, "the broker did not run then"
    assert any(found["pushP99Ms"])
    counted = [value for value in found["depth"] if value is not None]
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

    async def listed(**query: Any) -> list[str]:
        found = (await wire.get("/api/v1/resources/queues", search=mark, **query)).ok()
        assert found["total"] == 3
        return [one["name"][-1] for one in found["queues"]]

    assert await listed() == ["a", "c", "b"]
    assert await listed(sort="name") == ["a", "b", "c"]
    assert await listed(sort="name", order="desc") == ["c", "b", "a"]
    assert await listed(sort="pending") == ["a", "c", "b"]
    assert await listed(sort="pending", order="asc", limit=1, offset=1) == ["c"]
    assert await listed(sort="oldest") == ["b", "c", "a"], "whether somebody reads them or not"
    assert len(await listed(sort="deadLetters")) == 3
    (await wire.get("/api/v1/resources/queues", sort="size")).refused(400)
    found = (await wire.get("/api/v1/resources/queues", search=mark)).ok()["queues"]
    assert [one["paused"] for one in found] == [False, True, False]
    assert [(one["oldestAt"] is None, one["groups"]) for one in found] == [(False, 0), (False, 0), (False, 1)]
    assert {len(one["spark"]) for one in found} == {60}

    async def busiest() -> bool:
        found = (await wire.get("/api/v1/resources/queues", search=mark, sort="rate")).ok()["queues"]
        return bool(found[0]["rates"]["pushed"] == 0.3 and sum(found[0]["spark"]) * 5 == 3.0)

    await until(busiest)


async def test_the_lag_of_a_group_is_told_over_time(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, 2, 3)
    await wire.ack(await wire.pop(queue, consumerGroup="billing", batch=1))

    async def lags(**query: Any) -> list[int]:
        await wire.get("/api/v1/resources/overview")
        found = (await wire.get("/api/v1/history", queue=queue, **query)).ok()
        assert len(found["lag"]) == len(found["pushed"])
        return [lag for lag in found["lag"] if lag is not None]

    assert set(await until(lambda: lags(minutes=5, group="billing"))) == {2}
    assert await lags(minutes=5) == []
    (await wire.get("/api/v1/history", queue=queue, group="none")).refused(404)
    (await wire.get("/api/v1/history", group="billing")).refused(400)


def recorder_of(broker: Broker) -> HistoryRecorder:
    [recorder] = [one for one in broker._engine.services if isinstance(one, HistoryRecorder)]
    return recorder


@pytest.fixture(params=["sqlite", "postgres18"])
async def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A database of its own, because the leader measures all queues of it."""
    if request.param == "sqlite":
        backend: Backend = SqliteBackend(tmp_path / "queue.db")
    else:
        backend = PostgresBackend(request.getfixturevalue("postgres18"), Configuration("history", postgres=18))
    await backend.make()
    return backend


async def test_a_stuck_queue_has_a_history_though_nobody_looks_and_after_a_restart(
    empty_store: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = wall_clock()
    async with serving(await empty_store.open(None)) as wire:
        await wire.push("stuck", 1, 2, 3)
        await wire.ack(await wire.pop("stuck", consumerGroup="billing", batch=1))
        recorder = recorder_of(wire.app.broker)
        await recorder.record()  # it leads from now on
        await recorder.record()
    monkeypatch.setattr("fairlane.broker.history.wall_clock", lambda: began + 120_000_000)
    async with serving(await empty_store.open(None)) as wire:
        found = (await wire.get("/api/v1/history", queue="stuck", group="billing", minutes=60)).ok()
        known = [index for index, depth in enumerate(found["depth"]) if depth is not None]
        assert known, "measured by the leader, not by a reader"
        assert {found["depth"][index] for index in known} == {2}
        assert {found["lag"][index] for index in known} == {2}
        assert all(found["oldestSeconds"][index] >= 0 for index in known)
        assert round(sum(rate or 0 for rate in found["pushed"]) * 60) == 3
        assert [len(found[name]) for name in ("pushed", "depth", "lag", "pushP99Ms")] == [60] * 4
        everything = (await wire.get("/api/v1/history", minutes=60)).ok()
        for answer in (found, everything):
            [(mean, longest)] = {
                pair for pair in zip(answer["waitMeanMs"], answer["waitMaxMs"], strict=True) if pair[0]
            }
            assert 0 < mean <= longest + 1 < 60_000
        end = Moment(began + 120_000_000).isoformat()
        past = (await wire.get("/api/v1/history", queue="stuck", minutes=5, until=end)).ok()
        assert (past["stepSeconds"], [depth for depth in past["depth"] if depth is not None]) == (60, [2] * len(known))
        before = (await wire.get("/api/v1/history", minutes=5, until="2026-01-01T00:00:00Z")).ok()
        assert {*before["pushed"], *before["depth"]} == {None}
        assert [depth for depth in everything["depth"] if depth is not None] == [2] * len(known)
        assert any(everything["pushP99Ms"])
        for minutes, width, points in ((1440, 60, 1440), (10_080, 600, 1008), (43_200, 3600, 720)):
            found = (await wire.get("/api/v1/history", queue="stuck", minutes=minutes)).ok()
            assert (found["stepSeconds"], len(found["depth"])) == (width, points)
        (await wire.get("/api/v1/history", minutes=43_201)).refused(400)


async def test_every_broker_shows_what_all_brokers_did(
    postgres18: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = PostgresBackend(postgres18, Configuration("history", postgres=18))
    await backend.make()
    async with serving(await backend.open(None)) as first, serving(await backend.open(None)) as second:
        await first.push("orders", 1, 2)
        await second.push("orders", 3)
        leaders = []
        for wire in (first, second):
            await recorder_of(wire.app.broker).record()
            leaders.append(recorder_of(wire.app.broker)._token is not None)
        assert leaders == [True, False], "one broker measures for all"
    monkeypatch.setattr("fairlane.broker.history.wall_clock", lambda: wall_clock() + 120_000_000)
    async with serving(await backend.open(None)) as wire:
        found = (await wire.get("/api/v1/history", queue="orders", minutes=60)).ok()
        assert round(sum(rate or 0 for rate in found["pushed"]) * 60) == 3


async def test_stopped_lanes_are_counted_in_the_list(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="park")
    await wire.push(queue, 1, partition="a")
    await wire.push(queue, 1, partition="b")
    while taken := await wire.pop(queue):
        await wire.ack(taken, "failed")
    [listed] = (await wire.get("/api/v1/resources/queues", search=queue)).ok()["queues"]
    assert listed["lanesStopped"] == 2


@pytest.fixture
async def peer_processes(postgres18: PostgresServer, tmp_path: Path) -> AsyncIterator[list[Wire]]:
    """Return two processes of a broker, as they see each other."""
    backend = PostgresBackend(postgres18, Configuration("http", postgres=18))
    await backend.make()
    async with serving(await backend.open(None)) as first, serving(await backend.open(None)) as second:
        for number, wire in enumerate((first, second)):
            processes = wire.app.broker.process.peer_stats
            processes.peer_processes = PeerProcesses(tmp_path, number, 2)
            await processes.peer_processes.serve(processes.answers)
        yield [first, second]
        for wire in (first, second):
            assert wire.app.broker.process.peer_stats.peer_processes is not None
            wire.app.broker.process.peer_stats.peer_processes.close()


async def test_processes_of_a_broker_tell_what_all_of_them_did(peer_processes: list[Wire]) -> None:
    first, second = peer_processes
    queue = first.name()
    await first.push(queue, 1, 2)
    await second.push(queue, 3)
    assert len(await second.pop(queue)) == 3

    for wire in peer_processes:

        async def told(wire: Wire = wire) -> bool:
            found = (await wire.get("/api/v1/history", minutes=5, queue=queue)).ok()
            sums = [round(5 * sum(one or 0 for one in found[name])) for name in ("pushed", "popped")]
            whole = (await wire.get("/api/v1/history", minutes=5)).ok()
            [listed] = (await wire.get("/api/v1/resources/queues", search=queue)).ok()["queues"]
            rate, spark = listed["rates"]["pushed"] * 10, sum(listed["spark"]) * 5
            return sums == [3, 3] and sum(one or 0 for one in whole["pushed"]) == 3 and (rate, spark) == (3, 3)

        await until(told)
        assert any((await wire.get("/api/v1/history", minutes=5)).ok()["pushP99Ms"])
        if INSTALLED:
            assert (await wire.get("/api/v1/status/analytics", queue=queue, interval="minute")).ok()["dataPoints"]


async def test_a_process_tells_of_webhooks_that_came_to_another(
    peer_processes: list[Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    first, second = peer_processes
    hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }'
    inbox = await Inbox(first).apply(f"queue Q% {{}}\n{hook}")
    name = f"W{inbox.tag}"
    await until(lambda: name in second.app.broker.specs.compiled.webhooks)
    (await inbox.send("W", BODY, headers_of("github", BODY))).ok(202)
    inbox.wire = second
    (await inbox.send("W", BODY, headers_of("github", b"other"))).refused(401)
    for wire in peer_processes:
        [found] = [one for one in (await wire.get("/api/v1/hooks")).ok()["hooks"] if one["name"] == name]
        assert (found["delivered"], found["refused"]) == (1, 1)
        assert [one["outcome"] for one in found["recent"]] == ["mismatch", "queued"]
        findings = (await wire.get("/api/v1/findings")).ok()["findings"]
        assert [one["kind"] for one in findings if name in one["sentence"]] == ["hook_refused"]


async def test_a_process_that_does_not_answer_is_left_out(peer_processes: list[Wire]) -> None:
    first, second = peer_processes
    queue = first.name()
    await first.push(queue, 1)
    assert second.app.broker.process.peer_stats.peer_processes is not None
    second.app.broker.process.peer_stats.peer_processes.close()

    async def told() -> float:
        found = (await first.get("/api/v1/history", minutes=5, queue=queue)).ok()
        return 5 * sum(one or 0 for one in found["pushed"])

    assert round(await until(told)) == 1
