"""Specs are applied completely or not at all, each version once, and every broker reloads them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairlane.errors import Conflict, ConsentNeeded, FairlaneError, InvalidRequest
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.queue import QueueOptions
from fairlane.store.families.queues import SPECS
from fairlane.store.families.schedules import Schedule
from fairlane.store.families.specs import QueueChange, SpecChange
from fairlane.wire.schedules import ScheduleOptions
from fairlane.wire.specs import SpecDetail, SpecHead
from tests.conformance.harness import Harness
from tests.spec.samples import compiled
from tests.until import until


async def last(harness: Harness) -> int:
    found = await harness.store.specs.versions(DEFAULT_TENANT, limit=1)
    return found[0].version if found else 0


async def change(harness: Harness, app: str, *queues: QueueChange, **more: Any) -> SpecChange:
    """Return the next version of an app."""
    spec = SpecDetail(
        version=await last(harness) + 1,
        app=app,
        hash="h",
        applied_by="somebody",
        applied_at=Moment(0),
        source="app A {}",
        raw=msgspec.Raw(b'{"app":"A"}'),
    )
    return SpecChange(tenant=DEFAULT_TENANT, spec=spec, queues=queues, **more)


def document(app: str, text: str) -> bytes:
    return msgspec.json.encode(compiled(f"app {app} {{ {text} }}").spec)


def head_of(spec: SpecDetail) -> SpecHead:
    return SpecHead(
        version=spec.version, app=spec.app, hash=spec.hash, applied_by=spec.applied_by, applied_at=spec.applied_at
    )


async def test_a_spec_is_applied_whole(harness: Harness) -> None:
    specs, app = harness.store.specs, harness.name("app")
    one, two, schedule = harness.name("one"), await harness.queue("two", max_size=5), harness.name("tick")
    tick = Schedule(tenant=DEFAULT_TENANT, name=schedule, options=ScheduleOptions(queue=one, every_seconds=60),
                    revision="r", next_at=harness.clock() + 10**9)  # fmt: skip
    before, _ = await harness.store.queues.changes(0)
    wanted = await change(
        harness,
        app,
        QueueChange(name=one, before=None, after=QueueOptions(max_size=3)),
        QueueChange(name=two.name, before=two.options, after=QueueOptions(lease_seconds=7)),
        schedules=(tick,),
    )
    applied = await specs.apply(wanted)
    assert applied == msgspec.structs.replace(wanted.spec, applied_at=harness.clock())
    made = await harness.store.queues.get(DEFAULT_TENANT, one)
    assert made is not None
    assert made.options == QueueOptions(max_size=3)
    again = await harness.store.queues.get(DEFAULT_TENANT, two.name)
    assert again == msgspec.structs.replace(two, options=QueueOptions(lease_seconds=7))
    version, changed = await harness.store.queues.changes(before)
    assert changed is not None
    assert (version, sorted(changed)) == (before + 3, sorted([SPECS, made.id, two.id]))
    assert await harness.store.schedules.get(DEFAULT_TENANT, schedule) == tick
    gone = await change(harness, app, queues_gone=(one,), schedules_gone=(schedule,))
    await specs.apply(gone)
    assert await harness.store.queues.get(DEFAULT_TENANT, one) is None
    assert await harness.store.schedules.get(DEFAULT_TENANT, schedule) is None


async def test_versions_are_kept_and_the_latest_of_each_app_is_in_force(harness: Harness) -> None:
    specs, one, two = harness.store.specs, harness.name("a"), harness.name("b")
    first = await specs.apply(await change(harness, one))
    other = await specs.apply(await change(harness, two))
    second = await specs.apply(await change(harness, one))
    await harness.reopen()
    specs = harness.store.specs
    mine = [spec for spec in await specs.in_force(DEFAULT_TENANT) if spec.app in (one, two)]
    assert mine == [second, other]
    assert await specs.get(DEFAULT_TENANT, first.version) == first
    assert await specs.get(DEFAULT_TENANT, second.version + 1) is None
    heads = [head_of(spec) for spec in (second, other, first)]
    assert await specs.versions(DEFAULT_TENANT, limit=3) == heads
    assert await specs.versions(DEFAULT_TENANT, apps=[one]) == [heads[0], heads[2]]
    assert await specs.versions(DEFAULT_TENANT, before=second.version, limit=1) == [heads[1]]
    assert await specs.versions(harness.name("tenant")) == []


async def test_a_spec_that_cannot_be_applied_leaves_nothing_behind(harness: Harness) -> None:
    specs, app = harness.store.specs, harness.name("app")
    there, new = await harness.queue("there"), harness.name("new")
    await harness.push(there, [1])
    make = QueueChange(name=new, before=None, after=QueueOptions())
    version, catalogue = await last(harness), await harness.store.queues.changes(0)
    refused = [
        QueueChange(name=there.name, before=None, after=QueueOptions(max_size=9)),
        QueueChange(name=there.name, before=QueueOptions(max_size=1), after=QueueOptions(max_size=9)),
        QueueChange(name=there.name, before=there.options, after=QueueOptions(ordering="unordered")),
        QueueChange(name=harness.name("nobody"), before=QueueOptions(), after=QueueOptions(max_size=9)),
    ]
    for wrong in refused:
        with pytest.raises(Conflict):
            await specs.apply(await change(harness, app, make, wrong))
    stale = await change(harness, app, make)
    for number in (version, version + 2):
        with pytest.raises(Conflict):
            await specs.apply(msgspec.structs.replace(stale, spec=msgspec.structs.replace(stale.spec, version=number)))
    assert (await last(harness), await harness.store.queues.changes(0)) == (version, catalogue)
    assert await harness.store.queues.get(DEFAULT_TENANT, new) is None
    assert await harness.store.queues.get(DEFAULT_TENANT, there.name) == there


async def test_a_limit_that_a_spec_sets_counts_what_is_there(harness: Harness) -> None:
    one, two = await harness.queue("one"), await harness.queue("two")
    await harness.push(one, [1, 2, 3])
    await harness.push(two, [1])
    limited = QueueOptions(max_size=3)
    wanted = [QueueChange(name=queue.name, before=queue.options, after=limited) for queue in (two, one)]
    await harness.store.specs.apply(await change(harness, harness.name("app"), *wanted))
    assert [await harness.store.queues.depth(queue.id) for queue in (one, two)] == [3, 1]


async def test_of_applies_that_meet_each_is_a_version_of_its_own_and_the_last_is_in_force(harness: Harness) -> None:
    first, second = harness.broker, await harness.second_broker()
    app, queue = f"App{harness.token().hex}", harness.name("queue")
    brokers = [first, second] * 3
    documents = [document(app, f'queue "{queue}" {{ delivery {{ lease_seconds: {n} }} }}') for n in range(1, 7)]
    applied = await asyncio.gather(
        *(broker.specs.apply(one) for broker, one in zip(brokers, documents, strict=True)),
        return_exceptions=True,
    )
    done = [one for one in applied if not isinstance(one, BaseException)]
    assert all(isinstance(one, Conflict) for one in applied if isinstance(one, BaseException))
    assert done
    assert len({one.version for one in done}) == len(done)
    [latest] = [spec for spec in await harness.store.specs.in_force(DEFAULT_TENANT) if spec.app == app]
    assert latest.version == max(one.version for one in done)
    made = await harness.store.queues.get(DEFAULT_TENANT, queue)
    assert made is not None
    assert msgspec.json.decode(latest.raw)["queues"][queue]["options"]["lease_seconds"] == made.options.lease_seconds


async def test_every_broker_goes_by_what_one_of_them_applied(harness: Harness) -> None:
    first, second = harness.broker, await harness.second_broker()
    app, queue = f"App{harness.token().hex}", harness.name("queue")
    await second.push(queue, {"id": 1})
    typed = f'queue "{queue}" {{ message_type {{ id: string }} }}'
    await first.specs.apply(document(app, typed), consent=True)
    with pytest.raises(InvalidRequest, match="id: expected string, got int"):
        await first.push(queue, {"id": 1})

    async def refused() -> bool:
        try:
            await second.push(queue, {"id": 1})
        except InvalidRequest:
            return True
        return False

    await until(refused)
    await first.specs.apply(document(app, ""), consent=True)
    await until(lambda: _is_gone(second, queue))


async def _is_gone(broker: Any, queue: str) -> bool:
    return queue not in broker.specs.compiled.queues


async def test_what_is_applied_again_changes_nothing_and_what_others_changed_is_told_and_put_back(
    harness: Harness,
) -> None:
    broker, app = harness.broker, f"App{harness.token().hex}"
    specs, queue, other = broker.specs, harness.name("queue"), harness.name("other")
    text = f'queue "{queue}" {{ retention {{ max_depth: 9 }} key: id }} queue "{other}" {{}}'
    first = await specs.apply(document(app, text), source=text, by="me")
    assert (first.applied_by, (await specs.get(first.version)).source) == ("me", text)
    planned = await specs.plan(document(app, text))
    assert (planned.changes, planned.drift, planned.version) == ([], [], first.version)
    same = await specs.apply(document(app, text + " // the same\n"))
    assert same == msgspec.structs.replace(first, changes=[])

    await broker.queues.configure(queue, max_size=5)
    await broker.queues.delete(other)
    planned = await specs.plan(document(app, text))
    assert {(one.sign, one.name) for one in planned.drift} == {("~", queue), ("-", other)}
    assert {(one.sign, one.name) for one in planned.changes} == {("~", queue), ("+", other)}
    again = await specs.apply(document(app, text))
    assert again.version == first.version + 1
    assert (await specs.plan(document(app, text))).changes == []
    assert (await harness.store.queues.get(DEFAULT_TENANT, queue)).options.max_size == 9  # type: ignore[union-attr]


async def test_what_may_lose_messages_needs_consent_and_an_app_keeps_to_its_own(harness: Harness) -> None:
    specs, app, queue = harness.broker.specs, f"App{harness.token().hex}", harness.name("queue")
    await specs.apply(document(app, f'queue "{queue}" {{}}'))
    await harness.broker.push(queue, 1)
    for text in ("", f'queue "{queue}" {{ retention {{ max_age_seconds: 5 }} }}'):
        with pytest.raises(ConsentNeeded, match=queue):
            await specs.apply(document(app, text))
    with pytest.raises(Conflict, match="declared by app"):
        await specs.apply(document(f"{app}b", f'queue "{queue}" {{}}'), consent=True)
    with pytest.raises(FairlaneError, match="plan again"):
        await specs.apply(document(app, ""), consent=True, version=10**6)
    assert await harness.broker.queues.depth(queue) == 1
    await specs.apply(document(app, ""), consent=True)
    assert await harness.store.queues.get(DEFAULT_TENANT, queue) is None
