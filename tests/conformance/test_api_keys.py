"""API keys: names, hashed secrets, rotation, and the version that rises with each change."""

from __future__ import annotations

import msgspec

from fairlane.store.families.api_keys import ApiKey
from fairlane.store.families.queues import KEYS
from tests.conformance.harness import Harness


def a_key(harness: Harness, name: str, tenant: str, **more: object) -> ApiKey:
    values = {"role": "read-write", "scopes": ["push:orders.*"], "hash": b"h" * 32, "created_by": "key:root"}
    return ApiKey(id=harness.name("id"), tenant=tenant, name=name, created_at=0, **(values | more))  # type: ignore[arg-type]


async def test_a_key_is_found_by_its_id_and_by_its_name(harness: Harness) -> None:
    keys, tenant = harness.store.api_keys, harness.name("tenant")
    key = a_key(harness, "deploy", tenant, expires_at=harness.clock() + 5_000_000, role=None)
    assert await keys.add(key)
    stored = msgspec.structs.replace(key, created_at=harness.clock())
    assert await keys.get(tenant, key.id) == stored
    assert await keys.get(tenant, "deploy") == stored
    assert await keys.get(harness.name("other"), key.id) is None
    assert await keys.all(tenant) == [stored]
    assert stored in (await keys.load()).keys


async def test_a_name_is_used_once_until_its_key_is_revoked(harness: Harness) -> None:
    keys, tenant = harness.store.api_keys, harness.name("tenant")
    first, second = a_key(harness, "deploy", tenant), a_key(harness, "deploy", tenant)
    assert await keys.add(first)
    assert not await keys.add(second)
    assert await keys.add(msgspec.structs.replace(second, tenant=harness.name("other"), id=harness.name("id")))
    revoked = await keys.revoke(tenant, first.id)
    assert revoked is not None
    assert revoked.revoked_at == harness.clock()
    harness.clock.advance(1)
    assert await keys.revoke(tenant, first.id) == revoked
    assert await keys.add(second)
    found = await keys.get(tenant, "deploy")
    assert found is not None
    assert found.id == second.id
    assert [one.id for one in await keys.all(tenant)] == [first.id, second.id]
    known = await keys.load()
    assert first.id not in {one.id for one in known.keys}
    assert known.count > len(known.keys)


async def test_the_secret_before_is_good_for_a_while(harness: Harness) -> None:
    keys, tenant = harness.store.api_keys, harness.name("tenant")
    key = a_key(harness, "deploy", tenant)
    await keys.add(key)
    rotated = await keys.rotate(tenant, key.id, b"n" * 32, grace_seconds=60)
    assert rotated is not None
    assert (rotated.hash, rotated.old_hash) == (b"n" * 32, b"h" * 32)
    assert rotated.old_until == harness.clock() + 60_000_000
    await keys.revoke(tenant, key.id)
    assert await keys.rotate(tenant, key.id, b"m" * 32, grace_seconds=60) is None
    assert await keys.rotate(tenant, "nothing", b"m" * 32, grace_seconds=60) is None
    assert await keys.revoke(tenant, "nothing") is None


async def test_every_change_raises_the_version_of_the_catalogue(harness: Harness) -> None:
    keys, queues, tenant = harness.store.api_keys, harness.store.queues, harness.name("tenant")

    async def changes(since: int) -> tuple[int, int]:
        version, ids = await queues.changes(since)
        return version, (ids or []).count(KEYS)

    version, _ = await changes(0)
    key = a_key(harness, "deploy", tenant)
    await keys.add(key)
    await keys.add(key)
    version, count = await changes(version)
    assert count == 1
    await keys.rotate(tenant, key.id, b"n" * 32, grace_seconds=60)
    await keys.revoke(tenant, key.id)
    version, count = await changes(version)
    assert count == 2
    await keys.mark_used([key.id])
    assert await changes(version) == (version, 0)


async def test_when_a_key_was_used_is_known(harness: Harness) -> None:
    keys, tenant = harness.store.api_keys, harness.name("tenant")
    key, other = a_key(harness, "a", tenant), a_key(harness, "b", tenant)
    await keys.add(key)
    await keys.add(other)
    await keys.mark_used([key.id])
    assert [one.used_at for one in await keys.all(tenant)] == [harness.clock(), None]
