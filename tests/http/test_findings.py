"""Health findings: detected, explained in a sentence, and fixed by the action that they suggest."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from fairlane.broker import count_cache, health_findings, queue_findings
from fairlane.store.opening import open_journal
from tests.clock import ManualClock
from tests.conformance.backends import Backend, PostgresBackend, SqliteBackend
from tests.conformance.configurations import Configuration
from tests.faults.outages import frozen
from tests.http.events import listening
from tests.http.test_journal_operations import pause_pushes
from tests.http.test_operations import fail, make_busy, make_calm, push
from tests.http.test_webhooks import SECRET, Inbox
from tests.http.wire import Wire, serving
from tests.postgres import PostgresServer
from tests.until import until

PATH = "/api/v1/findings"


async def found(wire: Wire, kind: str, **match: Any) -> list[dict[str, Any]]:
    answer = (await wire.get(PATH)).ok()
    severities = [("critical", "warning", "notice").index(one["severity"]) for one in answer["findings"]]
    assert severities == sorted(severities)
    assert all(one["sentence"].endswith(".") for one in answer["findings"])
    return [one for one in answer["findings"] if one["kind"] == kind and match.items() <= one.items()]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count again for every request, however long counting takes on this machine."""
    monkeypatch.setattr(count_cache, "CHEAP_SECONDS", 1e9)


async def gone(wire: Wire, kind: str, **match: Any) -> bool:
    return not await found(wire, kind, **match)


@pytest.fixture
async def on_postgres(postgres18: PostgresServer) -> AsyncIterator[tuple[Wire, PostgresBackend]]:
    backend = PostgresBackend(postgres18, Configuration("http", postgres=18))
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        yield wire, backend


@pytest.fixture(params=["sqlite", "postgres18"])
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "queue.db")
    return PostgresBackend(request.getfixturevalue("postgres18"), Configuration("http", postgres=18))


@pytest.fixture
async def alone(empty_store: Backend) -> AsyncIterator[Wire]:
    """A broker without queues of other tests."""
    await empty_store.make()
    async with serving(await empty_store.open(None)) as wire:
        yield wire


async def use_up(wire: Wire, queue: str) -> None:
    while taken := await wire.pop(queue):
        await wire.ack(taken, "failed", error="the card was refused")


async def test_a_broker_that_is_well_has_nothing_to_tell(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    assert not [one for one in (await wire.get(PATH)).ok()["findings"] if one["queue"] == queue]


async def test_a_lane_that_is_blocked_is_told_of_and_its_action_resumes_it(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="block")
    await wire.push(queue, 1, 2, partition="customer 7")
    await use_up(wire, queue)
    [one] = await found(wire, "lanes_stopped", queue=queue)
    assert (one["severity"], one["partition"], one["count"]) == ("critical", "customer 7", 1)
    assert "the card was refused" in one["sentence"]
    assert one["page"].startswith(f"/queues/{quote(queue, safe='')}/partitions/customer%207?group=")
    action = one["action"]
    answer = await wire.ask(action["method"], action["path"], body=action["body"])
    assert answer.ok()["resumed"] == 1
    assert not await found(wire, "lanes_stopped", queue=queue)


async def test_many_lanes_of_a_group_are_one_finding(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="park")
    for number in range(3):
        await wire.push(queue, 1, partition=f"p{number}")
    await use_up(wire, queue)
    [one] = await found(wire, "lanes_stopped", queue=queue)
    assert (one["count"], one["partition"]) == (3, None)
    action = one["action"]
    assert (await wire.ask(action["method"], action["path"], body=action["body"])).ok()["resumed"] == 3


async def test_a_slow_store_is_not_away_and_the_last_findings_stay(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="block")
    await wire.push(queue, 1)
    await use_up(wire, queue)
    assert await found(wire, "lanes_stopped", queue=queue)
    monkeypatch.setattr(health_findings, "_ANSWER_SECONDS", 0.0)
    [one] = await until(lambda: found(wire, "store_slow"))
    assert (one["severity"], "the store is slow. The rest was counted" in one["sentence"]) == ("warning", True)
    assert not await found(wire, "store_away")
    assert await found(wire, "lanes_stopped", queue=queue)


async def test_dead_letters_that_grow_are_told_of_with_their_error(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0)
    await wire.push(queue, 1, 2, 3)
    await use_up(wire, queue)
    [one] = await until(lambda: found(wire, "dead_letters_growing", queue=queue))
    assert "the card was refused" in one["sentence"]
    assert one["count"] == 3
    await wire.delete("/api/v1/dlq", queue=queue)


async def test_a_message_that_somebody_gave_up_is_no_finding(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0)
    await wire.push(queue, 1)
    [one] = await wire.pop(queue)
    (await wire.post("/api/v1/messages", one["partitionId"], one["transactionId"], "dlq", body={})).ok()
    assert not await found(wire, "dead_letters_growing", queue=queue)
    await wire.push(queue, 3, partition="other")
    await use_up(wire, queue)
    [one] = await until(lambda: found(wire, "dead_letters_growing", queue=queue))
    assert f"1 message of {queue!r} became a dead letter in the last five minutes, with 'the " in one["sentence"]


async def test_a_group_that_nobody_reads_for_is_told_of(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_findings, "_UNREAD_SECONDS", 0)
    queue = wire.name()
    await wire.push(queue, 1, 2)
    taken = await wire.pop(queue, consumerGroup="billing", batch=1)
    assert not await found(wire, "group_stopped", queue=queue), "somebody has a message in hand"
    (await wire.post("/api/v1/lease", taken[0]["leaseId"], "release", body={})).ok()
    [one] = await until(lambda: found(wire, "group_stopped", queue=queue))
    assert (one["group"], one["count"]) == ("billing", 2)
    assert one["sentence"].endswith("and no consumer takes them.")
    (await wire.post("/api/v1/queues", queue, "pause", body={})).ok()
    [one] = await found(wire, "group_stopped", queue=queue)
    assert one["sentence"].endswith("and the queue is paused.")


async def test_a_group_whose_lanes_are_all_stopped_is_one_finding(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_findings, "_UNREAD_SECONDS", 0)
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="block")
    await wire.push(queue, 1, 2)
    await use_up(wire, queue)
    assert await until(lambda: found(wire, "lanes_stopped", queue=queue))
    assert not await found(wire, "group_stopped", queue=queue)


async def test_a_queue_that_nobody_ever_read_is_told_of(alone: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_findings, "_UNREAD_SECONDS", 0)
    wire = alone
    queue, letters = wire.name(), wire.name()
    await wire.configure(queue, deadLetterQueue=letters)
    await wire.push(queue, 1, 2)
    await wire.push(letters, 3)
    [one] = await until(lambda: found(wire, "queue_unread", queue=queue))
    assert (one["severity"], one["count"]) == ("warning", 2)
    assert one["sentence"].startswith(f"Nobody has ever read {queue!r}: 2 messages wait, the oldest for ")
    assert not await found(wire, "queue_unread", queue=letters), "dead letters wait there for somebody to look"
    listed = (await wire.get("/api/v1/resources/queues", search=queue)).ok()["queues"]
    assert [(one["name"], one["groups"], one["oldestAt"] is None) for one in listed] == [(queue, 0, False)]
    await wire.pop(queue, consumerGroup="billing", batch=1)
    assert not await found(wire, "queue_unread", queue=queue)
    listed = (await wire.get("/api/v1/resources/queues", search=queue)).ok()["queues"]
    assert [one["groups"] for one in listed] == [1]


async def test_findings_can_be_watched(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0, retryDelay=0, onExhausted="block")
    async with listening(wire, PATH) as events:
        await events.until(PATH, bool)
        await wire.push(queue, 1)
        await use_up(wire, queue)
        await events.until(PATH, lambda body: [one for one in body["findings"] if one["queue"] == queue])


async def test_operations_that_failed_are_told_of_until_they_are_discarded(wire: Wire) -> None:
    ids = await fail(wire, wire.name(), "poison")
    [one] = await found(wire, "operations_failed")
    assert (one["severity"], one["page"]) == ("critical", "/operations")
    assert one["count"] >= 1
    assert "accepted, and not applied" in one["sentence"]
    (await wire.post("/api/v1/operations/discard", body={"ids": ids})).ok()
    rest = await found(wire, "operations_failed")
    assert (rest[0]["count"] if rest else 0) == one["count"] - 1


async def test_operations_that_do_not_move_are_told_of_until_they_do(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_findings, "STUCK_SECONDS", 0)
    drain, queue = wire.app.broker._engine.operation_drain, wire.name()
    await drain.stop()
    make_busy(wire)
    await push(wire, queue, 1, 2)
    make_calm(wire)
    [one] = await until(lambda: found(wire, "operations_stuck"))
    assert (one["severity"], one["page"]) == ("warning", "/operations")
    assert "did not move for a minute" in one["sentence"]
    drain.start()
    await until(lambda: gone(wire, "operations_stuck"))


async def test_a_schedule_that_does_not_tick_is_told_of_and_its_action_runs_it(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_findings, "_LATE_SECONDS", 0)
    queue, name, due = wire.name(), wire.name("tick"), wire.app.broker._engine.scheduler_loop
    await due.stop()
    (await wire.post("/api/v1/schedules", name, body={"queue": queue, "everySeconds": 1})).ok()
    late = {"kind": "schedule_late", "queue": queue}
    [one] = await until(lambda: found(wire, **late))
    assert (one["severity"], one["page"]) == ("warning", "/schedules")
    assert one["sentence"] == f"The schedule {name!r} should have ticked and did not."
    action = one["action"]
    (await wire.ask(action["method"], action["path"], body=action["body"])).ok()
    assert await wire.pop(queue), "it ran"
    due.start()
    monkeypatch.setattr(queue_findings, "_LATE_SECONDS", 2)
    await until(lambda: gone(wire, **late))
    await wire.delete("/api/v1/schedules", name)


async def test_leases_that_run_out_again_and_again_are_told_of_until_the_message_is_done(backend: Backend) -> None:
    clock = ManualClock()
    await backend.make()
    async with serving(await backend.open(clock)) as wire:
        queue = wire.name()
        await wire.configure(queue, leaseTime=60, retryLimit=9)
        await wire.push(queue, 1, 2, partition="slow")
        for _ in range(2):
            assert await wire.pop(queue, consumerGroup="billing")
            clock.advance(61)
            assert not await found(wire, "leases_lost", queue=queue), "once is no habit"
        assert await wire.pop(queue, consumerGroup="billing")
        [one] = await until(lambda: found(wire, "leases_lost", queue=queue))
        clock.advance(61)
        assert (one["group"], one["count"], one["severity"]) == ("billing", 1, "warning")
        assert "1 lane" in one["sentence"]
        assert "handlers take longer than the lease" in one["sentence"]
        assert one["page"] == f"/queues/{quote(queue, safe='')}?group=billing"
        await wire.ack(await wire.pop(queue, consumerGroup="billing"))
        await until(lambda: gone(wire, "leases_lost", queue=queue))


async def test_a_group_is_seen_to_take_messages_at_another_broker(
    on_postgres: tuple[Wire, PostgresBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding does not depend on the counters of one process: another broker reports the same."""
    monkeypatch.setattr(queue_findings, "SHOWN_MAX", 1000)  # other tests may have left older groups
    clock, (_, backend) = ManualClock(), on_postgres
    async with serving(await backend.open(clock)) as here, serving(await backend.open(clock)) as there:
        queue = here.name()
        await here.configure(queue, retryLimit=0, retryDelay=0)
        await here.push(queue, 1, 2, 3)
        clock.advance(queue_findings._UNREAD_SECONDS)
        await here.ack(await here.pop(queue, consumerGroup="billing", batch=1))
        await here.ack(await here.pop(queue, consumerGroup="billing", batch=1), "failed", error="refused")
        clock.advance(queue_findings._UNREAD_SECONDS - 10)
        assert not await found(there, "group_stopped", queue=queue)
        [dead] = await until(lambda: found(there, "dead_letters_growing", queue=queue))
        assert (dead["count"], "'refused'" in dead["sentence"]) == (1, True)
        clock.advance(11)
        [stopped] = await until(lambda: found(there, "group_stopped", queue=queue))
        assert stopped["count"] == 1
        assert await gone(there, "dead_letters_growing", queue=queue), "they are older than five minutes"


async def test_a_webhook_without_its_secret_is_told_of_until_the_broker_has_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_findings, "SHOWN_MAX", 1000)
    await backend.make()
    tag = ""

    async def told() -> list[dict[str, Any]]:
        async with serving(await backend.open(None)) as wire:
            await until(lambda: wire.app.broker.specs.compiled.webhooks)
            return [one for one in await found(wire, "hook_unavailable") if tag in one["sentence"]]

    monkeypatch.setenv("HOOK_SECRET", SECRET)
    async with serving(await backend.open(None)) as wire:
        hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }'
        tag = (await Inbox(wire).apply(f"queue Q% {{}}\n{hook}")).tag
    monkeypatch.delenv("HOOK_SECRET")
    [one] = await told()
    assert (one["severity"], one["page"]) == ("critical", "/hooks")
    assert "answers 503: its secret is missing here" in one["sentence"]
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    assert not await told()


async def test_a_disk_that_is_nearly_full_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the SQLite file. The broker cannot see the disk of a database server."""
    monkeypatch.setattr(health_findings, "_REPORT_SECONDS", 0)
    async with serving(await SqliteBackend(tmp_path / "queue.db").open(None)) as wire:
        monkeypatch.setattr(health_findings, "_DISK_SHARE", 0.01)
        [one] = await found(wire, "disk_full")
        monkeypatch.setattr(health_findings, "_DISK_SHARE", 10**9)
        assert not await found(wire, "disk_full"), "there is room"
    assert (one["severity"], one["page"]) == ("critical", "/system")
    assert re.search(r"nearly full: \d+ MB of \d+ are free\.$", one["sentence"])


async def test_every_finding_says_since_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_findings, "_REPORT_SECONDS", 0)
    monkeypatch.setattr(health_findings, "_DISK_SHARE", 0.01)
    async with serving(await SqliteBackend(tmp_path / "queue.db").open(None)) as wire:
        [first] = await found(wire, "disk_full")
        [again] = await found(wire, "disk_full")
        assert first["since"] is not None
        assert again["since"] == first["since"], "the time when it was first reported"


async def test_a_transaction_that_stays_open_is_told_of_until_it_ends(
    on_postgres: tuple[Wire, PostgresBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, backend = on_postgres
    monkeypatch.setattr(health_findings, "_REPORT_SECONDS", 0)
    monkeypatch.setattr(health_findings, "_PINNED_SECONDS", 1)
    other = await asyncpg.connect(backend.url, server_settings={"application_name": "nightly report"})
    ours = await asyncpg.connect(backend.url, server_settings={"application_name": "fairlane"})
    try:
        async with ours.transaction(), other.transaction():
            await other.fetch("SELECT count(*) FROM fairlane.queues")
            [one] = await until(lambda: found(wire, "snapshot_pinned"))
            assert (one["severity"], one["page"]) == ("warning", "/system")
            who = f"of 'nightly report' (pid {other.get_server_pid()}, idle in transaction)"
            assert one["sentence"].startswith(f"A transaction {who} has been open for ")
            assert "old versions of rows may have to stay" in one["sentence"]
        await until(lambda: gone(wire, "snapshot_pinned"))
        async with ours.transaction():
            lasts = "SELECT clock_timestamp() - xact_start > interval '1 s' FROM pg_stat_activity WHERE pid = $1"
            await until(lambda: other.fetchval(lasts, ours.get_server_pid()))
            assert not await found(wire, "snapshot_pinned"), "sessions of brokers are none that an operator could end"
    finally:
        await other.close()
        await ours.close()


async def test_a_table_full_of_dead_rows_is_told_of_until_it_is_vacuumed(
    on_postgres: tuple[Wire, PostgresBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, backend = on_postgres
    monkeypatch.setattr(health_findings, "_REPORT_SECONDS", 0)
    monkeypatch.setattr(health_findings, "_DEAD_ROWS_MIN", 1000)
    other = await asyncpg.connect(backend.url)
    try:
        await other.execute("ALTER TABLE fairlane.purges SET (autovacuum_enabled = off)")  # or it may be faster
        await other.execute("INSERT INTO fairlane.purges SELECT -i, now() FROM generate_series(1, 2000) i")
        await other.execute("SELECT pg_stat_force_next_flush(); DELETE FROM fairlane.purges WHERE queue_id < 0")
        [one] = await until(lambda: found(wire, "bloat"))
        assert (one["severity"], one["page"]) == ("notice", "/system")
        assert "The table purges has" in one["sentence"]
        await other.execute("VACUUM fairlane.purges")
        await until(lambda: gone(wire, "bloat"))
    finally:
        await other.close()


async def test_a_journal_that_is_not_drained_is_told_of_with_its_reason(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_findings, "STUCK_SECONDS", 0)
    await backend.make()
    journal = await open_journal(str(tmp_path / "journal"), 10**9, "test")
    async with serving(await backend.open(None), journal=journal) as wire:
        await pause_pushes(wire, paused=True)
        await push(wire, wire.name(), 1)
        [one] = await found(wire, "journal_waiting")
        assert (one["severity"], one["page"]) == ("warning", "/operations")
        assert one["sentence"].startswith("1 message waits in the journal, ")
        assert one["sentence"].endswith("because pushes are paused.")
        drain = wire.app.broker._engine.journal_drain
        assert drain is not None
        await drain.stop()
        action = one["action"]
        (await wire.ask(action["method"], action["path"], body=action["body"])).ok()
        [one] = await found(wire, "journal_waiting")
        assert one["sentence"].endswith("although the store answers.")
        assert (one["severity"], one["action"]) == ("critical", None)
        full = "could not extend file: No space left on device"
        assert await wire.app.broker._engine.write_router.check_store(f"{full}\nHINT: Check free disk space.")
        [one] = await found(wire, "journal_waiting")
        assert one["sentence"].endswith(f"although the store answers; its last error was: {full}.")
        assert (await wire.get("/readyz")).ok()["journal"]["whyNot"] == full
        drain.start()
        await until(lambda: gone(wire, "journal_waiting"))


async def test_a_store_that_is_away_is_told_of_until_it_is_back(
    on_postgres: tuple[Wire, PostgresBackend], postgres18: PostgresServer, tmp_path: Path
) -> None:
    _, backend = on_postgres
    journal = await open_journal(str(tmp_path / "journal"), 10**9, "test")
    async with serving(await backend.open(None), journal=journal) as wire:
        queue = wire.name()
        await wire.push(queue, 0)
        with frozen(postgres18):
            await push(wire, queue, 1)
            [one] = await until(lambda: found(wire, "store_away"))
            assert (one["severity"], one["page"]) == ("critical", "/system")
            assert one["sentence"].startswith("The store is away for ")
            assert "1 message waits in the journal" in one["sentence"]
        await until(lambda: gone(wire, "store_away"))
