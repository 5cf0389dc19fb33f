"""The audit log: numbered without gaps, each entry chained to the one before, old entries deleted first."""

from __future__ import annotations

import asyncio

import msgspec

from fairlane.model.audit import AuditEntry
from tests.conformance.harness import Harness


def an_entry(target: str, tenant: str = "default") -> AuditEntry:
    return AuditEntry(
        tenant=tenant, caller="key:deploy", action="DELETE queue", target=target, outcome="done", source="127.0.0.1"
    )


async def test_entries_are_joined_by_their_hashes(harness: Harness) -> None:
    audit, tenant = harness.store.audit, harness.name("tenant")
    number, before = await audit.head()
    await asyncio.gather(*(audit.add([an_entry(f"{one}a", tenant), an_entry(f"{one}b", tenant)]) for one in range(8)))
    entries = [one for one in await audit.after(number, limit=100) if one.tenant == tenant]
    assert [one.number for one in entries] == list(range(number + 1, number + 17))
    assert sorted(one.target for one in entries) == sorted(f"{n}{x}" for n in range(8) for x in "ab")
    for entry in entries:
        assert entry.hashed(before) == entry
        before = entry.hash
    assert await audit.head() == (number + 16, before)
    newest = await audit.page(tenant, before=number + 16, limit=3)
    assert [one.number for one in newest] == [number + 15, number + 14, number + 13]
    assert await audit.page(harness.name("other"), before=2**62, limit=3) == []
    assert [one.number for one in await audit.page(None, before=2**62, limit=1)] == [number + 16]


async def test_entries_are_found_by_a_part_of_caller_action_or_target(harness: Harness) -> None:
    audit, tenant = harness.store.audit, harness.name("tenant")
    other = msgspec.structs.replace(an_entry("100%_sure", tenant), caller="token:Anna", action="queues.pause")
    await audit.add([an_entry("/queues/Orders", tenant), an_entry("/queues/mail", tenant), other])

    async def targets(search: str) -> list[str]:
        return [one.target for one in await audit.page(tenant, before=2**62, limit=10, search=search)]

    assert await targets("orders") == ["/queues/Orders"]
    assert await targets("key:deploy") == ["/queues/mail", "/queues/Orders"]
    assert await targets("anna") == await targets("queues.pause") == await targets("%_") == ["100%_sure"]
    assert await targets("nothing") == []
    await audit.add([an_entry("/queues/BÜCHER", tenant)])
    assert await targets("BÜCHER") == await targets("bÜcher") == ["/queues/BÜCHER"]


async def test_an_action_is_listed_with_its_end_once_there_is_one(harness: Harness) -> None:
    audit, tenant = harness.store.audit, harness.name("tenant")

    async def listed() -> list[tuple[int, str, str | None]]:
        return [(one.number, one.outcome, one.end) for one in await audit.page(tenant, before=2**62, limit=10)]

    begun = [msgspec.structs.replace(an_entry(target, tenant), outcome="begun") for target in "ab"]
    one, other = await audit.add(begun)
    assert await listed() == [(other, "begun", None), (one, "begun", None)]
    end = msgspec.structs.replace(an_entry("a", tenant), began=one)
    [number] = await audit.add([end])
    assert await listed() == [(other, "begun", None), (one, "begun", "done")]
    assert await audit.add([end, an_entry("c", tenant)]) == [number, number + 1], "its answer may have been lost"
    assert await listed() == [(number + 1, "done", None), (other, "begun", None), (one, "begun", "done")]
    before = b""
    for entry in await audit.after(one - 1, limit=4):
        assert entry.number == one or entry.hashed(before) == entry
        before = entry.hash


async def test_old_entries_are_deleted_from_the_beginning(harness: Harness) -> None:
    audit = harness.store.audit
    await audit.add([an_entry("old"), an_entry("old too")])
    harness.clock.advance(100)
    await audit.add([an_entry("new")])
    while await audit.forget(seconds=50, limit=1):
        pass
    number, hash = await audit.head()
    [oldest, left] = await audit.after(0, limit=1000)
    assert (left.number, left.target, left.hash) == (number, "new", hash)
    assert (oldest.number, oldest.target) == (number - 1, "old too"), "it proves that those before it were old"
    assert oldest.hashed(oldest.previous) == oldest
    assert await audit.forget(seconds=50, limit=10) == 0


async def test_entries_behind_a_young_one_stay_when_the_clock_went_back(harness: Harness) -> None:
    audit = harness.store.audit
    await audit.add([an_entry("young")])
    number, _ = await audit.head()
    harness.clock.advance(-100)
    await audit.add([an_entry("earlier by the clock"), an_entry("too")])
    harness.clock.advance(110)
    while await audit.forget(seconds=50, limit=10):
        pass
    left = [one.number for one in await audit.after(0, limit=1000)]
    assert left == list(range(left[0], number + 3))
    assert left[0] <= number
