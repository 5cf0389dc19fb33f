"""Schedules: one push per tick, whichever broker pushes it and whatever the clocks do."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
import pytest_asyncio

from fairlane.broker import schedules
from fairlane.broker.broker import Broker
from fairlane.errors import Conflict, InvalidRequest, NotFound, PayloadInvalid
from fairlane.model.names import DEFAULT_TENANT
from fairlane.runtime.ticks import due, ticks
from fairlane.store.families.schedules import Advance, Schedule
from fairlane.wire.schedules import ScheduleOptions
from tests.conformance.harness import Harness
from tests.conformance.test_encryption import OLD, opened
from tests.conformance.test_specs import document

ROME = ZoneInfo("Europe/Rome")


def micros(*when: int, zone: Any = UTC) -> int:
    return int(datetime(*when, tzinfo=zone).timestamp()) * 1_000_000  # type: ignore[misc,arg-type]


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def none_left(harness: Harness) -> None:
    """Delete the schedules of earlier tests in the same database."""
    for schedule in await harness.store.schedules.all(DEFAULT_TENANT):
        await harness.store.schedules.delete(DEFAULT_TENANT, schedule.name)


async def put(harness: Harness, name: str, options: ScheduleOptions) -> Schedule:
    await harness.broker.schedules.define(name, options)
    stored = await harness.store.schedules.get(DEFAULT_TENANT, name)
    assert stored is not None
    return stored


async def pushed(broker: Broker, queue: str) -> list[Any]:
    batch = await broker.pop(queue, batch=1000, auto_ack=True)
    return [delivery.data["tick"] for delivery in batch]


async def rest(broker: Broker) -> None:
    """Stop the background services. The test decides when brokers check their schedules."""
    await broker._engine.scheduler_loop.stop()


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
async def test_a_tick_that_comes_between_two_looks_at_the_clock_is_pushed(harness: Harness, missed: Any) -> None:
    broker, queue, name = harness.broker, harness.name("orders"), harness.name("schedule")
    await rest(broker)
    options = ScheduleOptions(queue=queue, every_seconds=10, missed=missed)
    kept = await put(harness, name, options)
    assert kept.next_at is not None
    harness.clock.at = kept.next_at - 1
    due_now = harness.store.schedules.due

    async def a_moment_later(*, limit: int) -> list[Schedule]:
        harness.clock.at += 1
        return await due_now(limit=limit)

    harness.store.schedules.due = a_moment_later  # type: ignore[method-assign]
    assert await broker._engine.ticks.push_due() == 1
    assert len(await pushed(broker, queue)) == 1


async def test_a_schedule_is_kept_as_it_was_defined(harness: Harness) -> None:
    schedules = harness.store.schedules
    tenant, name = DEFAULT_TENANT, harness.name("schedule")
    options = ScheduleOptions(
        queue="q", cron="0 9 * * MON", timezone="Europe/Rome", data=msgspec.Raw(b'{"a":"\\u0000"}')
    )
    first = Schedule(tenant=tenant, name=name, options=options, revision="r1", next_at=harness.clock() + 5)
    assert await schedules.put(first) == first
    again = msgspec.structs.replace(first, revision="r2", next_at=harness.clock() + 9)
    assert await schedules.put(again) == first, "the same options change nothing"
    await harness.reopen()
    schedules = harness.store.schedules
    assert await schedules.all(tenant) == [first]
    assert await schedules.all(harness.name("other")) == []
    changed = msgspec.structs.replace(again, options=ScheduleOptions(queue="q", every_seconds=5))
    assert await schedules.put(changed) == changed
    assert await schedules.get(tenant, name) == changed
    assert await schedules.delete(tenant, name)
    assert not await schedules.delete(tenant, name)
    assert await schedules.get(tenant, name) is None


async def test_a_schedule_is_due_at_its_time_and_not_before(harness: Harness) -> None:
    schedules = harness.store.schedules
    tenant, name = DEFAULT_TENANT, harness.name("schedule")
    now = harness.clock()
    schedule = Schedule(
        tenant=tenant,
        name=name,
        options=ScheduleOptions(queue="q", every_seconds=60),
        revision="r1",
        next_at=now + 60_000_000,
    )
    await schedules.put(schedule)
    assert await schedules.next_in() == 60_000_000
    harness.clock.advance(59.999)
    assert await schedules.due(limit=10) == []
    harness.clock.advance(0.001)
    assert await schedules.due(limit=10) == [schedule]
    step = Advance(tenant=tenant, name=name, before="r1", revision="r2", next_at=now + 120_000_000)
    assert await schedules.advance(step)
    assert not await schedules.advance(step), "the step is taken once"
    assert await schedules.due(limit=10) == []
    assert await schedules.next_in() == 60_000_000


async def test_a_schedule_remembers_its_last_tick_and_what_became_of_the_message(harness: Harness) -> None:
    await rest(harness.broker)
    queue, name = harness.name("queue"), harness.name("schedule")
    schedule = await put(harness, name, ScheduleOptions(queue=queue, every_seconds=60))
    schedules = harness.broker.schedules
    assert (await schedules.get(name)).last_run is None
    harness.clock.advance(60)
    assert await harness.broker._engine.ticks.push_due() == 1
    run = (await schedules.get(name)).last_run
    assert run is not None
    assert schedule.next_at is not None
    assert (run.at, run.status) == (schedule.next_at, "pending")
    [message] = await harness.broker.pop(queue)
    assert message.transaction_id == run.transaction_id
    assert [one.last_run.status for one in await schedules.all() if one.name == name and one.last_run] == ["processing"]
    await harness.broker.ack(message, "dlq", error="no paper")
    await schedules.define(name, ScheduleOptions(queue=harness.name("other"), every_seconds=60))
    run = (await schedules.get(name)).last_run
    assert run is not None
    assert (run.partition_id, run.status) == (str(message.partition_id), "dead_letter"), (
        "in the queue that it was pushed to"
    )
    await harness.broker.queues.delete(queue)
    run = (await schedules.get(name)).last_run
    assert run is not None
    assert (run.partition_id, run.status) == (None, None)


async def test_a_paused_schedule_is_never_due_and_stays_paused(harness: Harness) -> None:
    schedules = harness.store.schedules
    tenant, name = DEFAULT_TENANT, harness.name("schedule")
    options = ScheduleOptions(queue="q", every_seconds=60)
    await schedules.put(Schedule(tenant=tenant, name=name, options=options, revision="r1", next_at=harness.clock()))
    paused = await schedules.set_next(tenant, name, "r2", None)
    assert paused is not None
    assert (paused.next_at, paused.paused_at) == (None, harness.clock())
    assert await schedules.due(limit=10) == []
    assert await schedules.next_in() is None
    other = Schedule(tenant=tenant, name=name, options=ScheduleOptions(queue="other", every_seconds=60), revision="r3",
                     next_at=harness.clock())  # fmt: skip
    assert (await schedules.put(other)).next_at is None
    resumed = await schedules.set_next(tenant, name, "r4", harness.clock() + 7)
    assert resumed is not None
    assert (resumed.next_at, resumed.paused_at) == (harness.clock() + 7, None)
    assert await schedules.set_next(tenant, "nobody", "r5", None) is None


async def test_a_tick_is_pushed_with_the_step_to_the_next_or_not_at_all(harness: Harness) -> None:
    await rest(harness.broker)
    queue, name = harness.name("queue"), harness.name("schedule")
    schedule = await put(harness, name, ScheduleOptions(queue=queue, every_seconds=60))
    assert schedule.next_at is not None
    step = Advance(tenant=DEFAULT_TENANT, name=name, before="another", revision="r", next_at=schedule.next_at + 1)
    with pytest.raises(Conflict):
        await harness.store.schedules.commit(step, [], [])
    assert await harness.store.schedules.get(DEFAULT_TENANT, name) == schedule
    await harness.broker.queues.configure(queue, max_size=1)
    await harness.broker.push(queue, {"tick": "first"})
    harness.clock.advance(60)
    assert await harness.broker._engine.ticks.push_due() == 0
    assert await harness.store.schedules.get(DEFAULT_TENANT, name) == schedule, "a full queue leaves it where it was"
    assert await pushed(harness.broker, queue) == ["first"]
    harness.clock.advance(6)
    assert await harness.broker._engine.ticks.push_due() == 1


async def test_each_tick_is_pushed_once_by_three_brokers_over_a_change_of_the_clock(harness: Harness) -> None:
    """02:30 does not exist in the night when the clocks go forward, and occurs twice when they go back."""
    harness.clock.at = max(harness.clock.at, micros(2027, 3, 27, 12, 0, zone=ROME))
    brokers = [harness.broker, await harness.second_broker(), await harness.second_broker()]
    for broker in brokers:
        await rest(broker)
    queue = harness.name("queue")
    await put(harness, harness.name("nightly"), ScheduleOptions(queue=queue, cron="30 2 * * *", timezone="Europe/Rome"))
    for _ in range(8):
        harness.clock.advance(6 * 3600)
        await asyncio.gather(*(broker._engine.ticks.push_due() for broker in brokers))
    assert await pushed(harness.broker, queue) == ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]
    harness.clock.at = micros(2027, 10, 30, 12, 0, zone=ROME)
    await asyncio.gather(*(broker._engine.ticks.push_due() for broker in brokers))
    assert await pushed(harness.broker, queue) == ["2027-10-30T00:30:00Z"], "one for all that were missed"
    for _ in range(16):
        harness.clock.advance(3 * 3600)
        await asyncio.gather(*(broker._engine.ticks.push_due() for broker in brokers))
    assert await pushed(harness.broker, queue) == ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 5)])
async def test_ticks_that_were_missed_are_skipped_or_pushed_once_or_all(
    harness: Harness, missed: Any, count: int
) -> None:
    await rest(harness.broker)
    queue = harness.name("queue")
    harness.clock.at = harness.clock.at // 3_600_000_000 * 3_600_000_000
    await put(harness, harness.name("hourly"), ScheduleOptions(queue=queue, every_seconds=3600, missed=missed))
    harness.clock.advance(5 * 3600 + 1800)
    assert await harness.broker._engine.ticks.push_due() == count
    found = await pushed(harness.broker, queue)
    assert len(found) == count
    harness.clock.advance(1800)
    assert await harness.broker._engine.ticks.push_due() == 1


async def test_a_schedule_runs_now_without_losing_its_tick(harness: Harness) -> None:
    await rest(harness.broker)
    schedules = harness.broker.schedules
    queue, name = harness.name("queue"), harness.name("schedule")
    before = await put(
        harness, name, ScheduleOptions(queue=queue, every_seconds=60, data=msgspec.Raw(b'{"tick":"mine"}'))
    )
    for _ in range(2):
        assert (await schedules.run(name)).message_id is not None
    assert await pushed(harness.broker, queue) == ["mine", "mine"]
    assert await harness.store.schedules.get(DEFAULT_TENANT, name) == before
    with pytest.raises(NotFound):
        await schedules.run(harness.name("nobody"))


@pytest.mark.parametrize(
    "options",
    [
        ScheduleOptions(queue="q"),
        ScheduleOptions(queue="q", every_seconds=0),
        ScheduleOptions(queue="q", every_seconds=5, cron="* * * * *"),
        ScheduleOptions(queue="q", cron="every day"),
        ScheduleOptions(queue="q", cron="0 0 31 2 *"),
        ScheduleOptions(queue="q", cron="* * * * *", timezone="Atlantis"),
        ScheduleOptions(queue="", every_seconds=5),
    ],
)
async def test_a_schedule_that_cannot_tick_is_refused(harness: Harness, options: ScheduleOptions) -> None:
    name = harness.name("schedule")
    with pytest.raises(InvalidRequest):
        await put(harness, name, options)
    assert await harness.store.schedules.get(DEFAULT_TENANT, name) is None


async def test_what_a_long_outage_left_comes_in_steps_and_is_found_quickly(harness: Harness) -> None:
    minutely = ScheduleOptions(queue="q", cron="* * * * *", missed="all")
    begin = micros(2027, 1, 1, 0, 0)
    passed, following = due(minutely, begin, begin + 10 * 86_400_000_000, most=100)
    assert (len(passed), passed[0], following) == (100, begin, begin + 100 * 60_000_000)
    once = msgspec.structs.replace(minutely, missed="once")
    assert due(once, begin, begin + 900 * 86_400_000_000, most=100)[0] == [begin + 900 * 86_400_000_000]
    yearly = ScheduleOptions(queue="q", cron="0 0 1 1 *")
    assert due(yearly, begin, micros(2029, 6, 1), most=100)[0] == [micros(2029, 1, 1)]
    hourly = ticks(ScheduleOptions(queue="q", cron="0 * * * *", timezone="Europe/Rome"), micros(2027, 10, 30, 23, 30))
    assert [next(hourly) for _ in range(3)] == [micros(2027, 10, 31, hour, 0) for hour in (0, 1, 2)]


async def test_a_schedule_whose_message_does_not_fit_its_typed_queue_is_refused(harness: Harness) -> None:
    broker, queue, name = harness.broker, harness.name("typed"), harness.name("schedule")
    typed = f'queue "{queue}" {{ message_type {{ a: int }} }}'
    await broker.specs.apply(document(f"App{harness.token().hex}", typed), consent=True)
    for data in (b'{"a":"x"}', b"null"):
        with pytest.raises(PayloadInvalid):
            await broker.schedules.define(name, ScheduleOptions(queue=queue, every_seconds=1, data=msgspec.Raw(data)))
    with pytest.raises(NotFound):
        await broker.schedules.get(name)
    made = await broker.schedules.define(
        name, ScheduleOptions(queue=queue, every_seconds=1, data=msgspec.Raw(b'{"a":1}'))
    )
    assert made.refused is None


async def test_a_schedule_whose_queue_got_another_type_says_why_it_does_not_tick(harness: Harness) -> None:
    broker, queue, name = harness.broker, harness.name("typed"), harness.name("schedule")
    await rest(broker)
    await broker.schedules.define(name, ScheduleOptions(queue=queue, every_seconds=1, data=msgspec.Raw(b'{"a":"x"}')))
    app = f"App{harness.token().hex}"
    await broker.specs.apply(document(app, f'queue "{queue}" {{ message_type {{ a: int }} }}'), consent=True)
    harness.clock.advance(3600)
    assert await broker._engine.ticks.push_due() == 0
    refused = (await broker.schedules.get(name)).refused
    assert refused is not None
    assert "int" in refused
    assert [one.refused for one in await broker.schedules.all() if one.name == name] == [refused]
    [late] = [one for one in await broker.findings.all() if one.kind == "schedule_late" and one.queue == queue]
    assert refused in late.sentence
    await broker.specs.apply(document(app, f'queue "{queue}" {{ message_type {{ a: string }} }}'), consent=True)
    assert (await broker.schedules.get(name)).refused is None
    harness.clock.advance(10)
    assert await broker._engine.ticks.push_due() == 1


async def test_refused_schedules_hold_up_no_others(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "_SCHEDULES_MAX", 2)
    broker, full, queue = harness.broker, harness.name("full"), harness.name("orders")
    await rest(broker)
    await broker.queues.configure(full, max_size=1)
    await broker.push(full, 0)
    for number in range(5):
        await put(harness, f"{number} {full}", ScheduleOptions(queue=full, every_seconds=10))
    harness.clock.advance(10)
    await put(harness, queue, ScheduleOptions(queue=queue, every_seconds=10))
    harness.clock.advance(10)
    assert [await broker._engine.ticks.push_due() for _ in range(4)] == [0, 0, 1, 0]


async def test_a_schedule_whose_queue_cannot_be_sealed_holds_up_no_others(harness: Harness) -> None:
    await opened(harness, OLD)
    sealed, queue = harness.name("sealed"), harness.name("orders")
    await harness.broker.queues.configure(sealed, encryption_enabled=True)
    await rest(harness.broker)
    await put(harness, sealed, ScheduleOptions(queue=sealed, every_seconds=10))
    harness.clock.advance(10)
    await put(harness, queue, ScheduleOptions(queue=queue, every_seconds=10))
    await opened(harness)
    await rest(harness.broker)
    harness.clock.advance(10)
    assert await harness.broker._engine.ticks.push_due() == 1
