"""Login sessions: stored by the hash of their id until they expire, and limited per owner."""

from __future__ import annotations

from fairlane.store.families.queues import KEYS
from fairlane.store.families.sessions import SESSIONS_MAX, Session
from tests.conformance.harness import Harness


def a_session(harness: Harness, owner: str, seconds: int = 60) -> Session:
    return Session(
        hash=harness.name("hash").encode(),
        tenant="default",
        owner=owner,
        key_hash=b"k" * 32,
        expires_at=harness.clock() + seconds * 1_000_000,
    )


async def known(harness: Harness, owner: str) -> list[Session]:
    return [one for one in (await harness.store.api_keys.load()).sessions if one.owner == owner]


async def test_a_session_is_known_until_it_is_over(harness: Harness) -> None:
    owner = harness.name("owner")
    session = a_session(harness, owner)
    await harness.store.sessions.add(session)
    assert await known(harness, owner) == [session]
    harness.clock.advance(61)
    assert await known(harness, owner) == []


async def test_a_session_is_ended_once_and_every_broker_is_told(harness: Harness) -> None:
    owner = harness.name("owner")
    session, other = a_session(harness, owner), a_session(harness, owner)
    await harness.store.sessions.add(session)
    await harness.store.sessions.add(other)
    version, _ = await harness.store.queues.changes(0)
    await harness.store.sessions.end(session.hash)
    later, changed = await harness.store.queues.changes(version)
    assert (later > version, KEYS in (changed or [])) == (True, True)
    assert await known(harness, owner) == [other]
    await harness.store.sessions.end(session.hash)


async def test_one_owner_has_a_limited_number_of_sessions(harness: Harness) -> None:
    owner, other = harness.name("owner"), harness.name("other")
    await harness.store.sessions.add(a_session(harness, other))
    sessions = [a_session(harness, owner) for _ in range(SESSIONS_MAX + 2)]
    for session in sessions:
        await harness.store.sessions.add(session)
        harness.clock.advance(0.001)
    left = {one.hash for one in await known(harness, owner)}
    assert left == {one.hash for one in sessions[2:]}
    assert len(await known(harness, other)) == 1
