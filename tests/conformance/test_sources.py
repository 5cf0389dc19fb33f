"""Sources: the records of a page and the new cursor are committed together and once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from fairlane.broker import sources
from fairlane.broker.broker import Broker
from fairlane.errors import Conflict, InvalidRequest, LeaseLost, NotFound, QueueFull
from fairlane.model.names import DEFAULT_TENANT
from fairlane.wire.sources import SourceCommitted, SourcePage, SourceRecord, SourceView
from tests.conformance.harness import Harness


def record(key: str, text: str = "a") -> SourceRecord:
    return SourceRecord(
        key=key, hash=f"hash of {text:.20}", data=msgspec.Raw(msgspec.json.encode({"id": key, "text": text}))
    )


class Reader:
    """A poller of one source, without a real API."""

    def __init__(self, broker: Broker, name: str, queue: str) -> None:
        self.broker = broker
        self.name = name
        self.queue = queue
        self._revisions = 0

    async def lease(self, seconds: int = 60) -> SourceView:
        self.source = await self.broker.sources.lease(self.name, seconds=seconds)
        self.revision = self.source.revision
        return self.source

    def page(self, *records: SourceRecord, cursor: str | None = None, **more: Any) -> SourcePage:
        self._revisions += 1
        revision = f"{self.source.token}.{self._revisions}"
        fields: dict[str, Any] = {
            "token": self.source.token,
            "before": self.revision,
            "revision": revision,
            "queue": self.queue,
        }
        return SourcePage(**{**fields, "cursor": cursor, "records": list(records), **more})

    async def send(self, page: SourcePage) -> SourceCommitted:
        done = await self.broker.sources.commit(self.name, page)
        self.revision = done.revision
        return done

    async def commit(self, *records: SourceRecord, cursor: str | None = None, **more: Any) -> SourceCommitted:
        return await self.send(self.page(*records, cursor=cursor, **more))

    async def state(self) -> SourceView:
        return await self.broker.sources.get(self.name)

    async def events(self) -> list[tuple[str, str]]:
        """Return event and key of the messages pushed since the last call."""
        found: list[tuple[str, str]] = []
        while batch := await self.broker.pop(self.queue, batch=1000, partitions=1000, auto_ack=True):
            found += [(data["event"], data["key"]) for data in (msgspec.json.decode(one.raw) for one in batch)]
        return sorted(found)


@pytest_asyncio.fixture(loop_scope="session")
async def reader(harness: Harness) -> Reader:
    found = Reader(harness.broker, harness.name("source"), harness.name("queue"))
    await found.lease()
    return found


async def test_a_source_is_leased_to_one_at_a_time_and_each_has_a_greater_token(harness: Harness) -> None:
    store, tenant, name = harness.store.sources, DEFAULT_TENANT, harness.name("source")
    first = await store.lease(tenant, name, seconds=10)
    assert first is not None
    assert (first.revision, first.cursor, first.records, first.sweep, first.sweeping) == ("", None, 0, 0, False)
    assert first.leased_until == harness.clock() + 10_000_000
    assert await store.lease(tenant, name, seconds=10) is None
    harness.clock.advance(9)
    kept = await store.keep(tenant, name, first.token, seconds=10)
    assert kept is not None
    assert kept.leased_until == harness.clock() + 10_000_000
    harness.clock.advance(10)
    assert await store.keep(tenant, name, first.token, seconds=10) is None, "it ended"
    second = await store.lease(tenant, name, seconds=10)
    assert second is not None
    assert second.token > first.token
    assert not await store.release(tenant, name, first.token)
    assert await store.lease(tenant, name, seconds=10) is None
    assert await store.release(tenant, name, second.token)
    third = await store.lease(tenant, name, seconds=10)
    assert third is not None
    assert third.token > second.token
    assert (await store.get(tenant, name)) == third
    assert [one.name for one in await store.all(tenant) if one.id == third.id] == [name]
    assert await store.get(harness.name("other"), name) is None


async def test_one_of_many_that_want_a_source_at_once_gets_it(harness: Harness) -> None:
    name = harness.name("source")
    stores = [harness.store, await harness.open_second()]
    found = await asyncio.gather(*(stores[n % 2].sources.lease(DEFAULT_TENANT, name, seconds=10) for n in range(6)))
    assert len([one for one in found if one]) == 1


async def test_a_page_is_committed_with_its_cursor_records_and_messages(reader: Reader) -> None:
    done = await reader.commit(record("1"), record("2"), cursor="2")
    assert (done.created, done.changed, done.unchanged, done.deleted) == (2, 0, 0, 0)
    assert await reader.events() == [("created", "1"), ("created", "2")]
    done = await reader.commit(record("2"), record("3"), record("1", "b"), cursor="3")
    assert (done.created, done.changed, done.unchanged) == (1, 1, 1)
    assert await reader.events() == [("changed", "1"), ("created", "3")]
    state = await reader.state()
    assert (state.cursor, state.records, state.revision) == ("3", 3, done.revision)
    assert (await reader.commit(cursor="9")).created == 0
    assert (await reader.state()).cursor == "9", "a page without records moves the cursor too"


async def test_a_message_tells_source_event_key_and_record(reader: Reader) -> None:
    page = SourceRecord(key="7", hash="h", data=msgspec.Raw(b'{"id":7,"b":[1, 2],"a":"\\u0000"}'), partition="lane")
    await reader.commit(page, type="order")
    [message] = await reader.broker.pop(reader.queue, batch=10)
    assert bytes(message.raw).endswith(b'"record":{"id":7,"b":[1, 2],"a":"\\u0000"}}')
    data = msgspec.json.decode(message.raw)
    assert (data["source"], data["event"], data["key"], data["record"]["id"]) == (reader.name, "created", "7", 7)
    assert (message.type, message.partition) == ("order.created", "lane")


async def test_a_commit_that_is_repeated_does_nothing_again(reader: Reader) -> None:
    page = reader.page(record("1"), cursor="1")
    assert not (await reader.send(page)).repeated
    before = await reader.state()
    again = await reader.send(page)
    assert (again.repeated, again.revision) == (True, page.revision)
    assert await reader.state() == before
    assert await reader.events() == [("created", "1")]
    await reader.commit(record("1", "b"), cursor="2")
    with pytest.raises(Conflict):
        await reader.send(page)
    assert await reader.events() == [("changed", "1")], "an old page that comes late moves nothing back"
    assert (await reader.state()).cursor == "2"


async def test_one_of_two_commits_of_one_revision_counts(harness: Harness, reader: Reader) -> None:
    other = Reader(await harness.second_broker(), reader.name, reader.queue)
    other.source, other.revision = reader.source, reader.revision
    pages = [reader.page(record("1"), cursor="1"), reader.page(record("1"), record("2"), cursor="2")]
    done = await asyncio.gather(reader.send(pages[0]), other.send(pages[1]), return_exceptions=True)
    assert sorted(isinstance(one, SourceCommitted) for one in done) == [False, True]
    assert isinstance(next(one for one in done if not isinstance(one, SourceCommitted)), Conflict)
    events = await reader.events()
    assert len(events) == (await reader.state()).records == len(set(events))


async def test_the_same_commit_sent_twice_at_once_counts_once(harness: Harness, reader: Reader) -> None:
    other = Reader(await harness.second_broker(), reader.name, reader.queue)
    page = reader.page(*(record(str(n)) for n in range(20)), cursor="1")
    done = await asyncio.gather(reader.send(page), other.send(page))
    assert sorted(one.repeated for one in done) == [False, True]
    assert len(await reader.events()) == 20


async def test_a_commit_without_the_lease_stores_nothing(harness: Harness, reader: Reader) -> None:
    page = reader.page(record("1"), cursor="1")
    harness.clock.advance(61)
    with pytest.raises(LeaseLost):
        await reader.send(page)
    other = Reader(reader.broker, reader.name, reader.queue)
    await other.lease()
    with pytest.raises(LeaseLost):
        await reader.send(page)
    assert (await reader.state()).cursor is None
    assert await reader.events() == []
    assert (await other.commit(record("1"), cursor="1")).created == 1
    with pytest.raises(NotFound):
        await reader.broker.sources.commit(harness.name("nobody"), page)


async def test_a_commit_whose_messages_do_not_fit_changes_nothing(reader: Reader) -> None:
    await reader.broker.queues.configure(reader.queue, max_size=2)
    await reader.commit(record("1"), cursor="1")
    before = await reader.state()
    page = reader.page(record("2"), record("3"), cursor="3")
    with pytest.raises(QueueFull):
        await reader.send(page)
    assert await reader.state() == before
    assert await reader.events() == [("created", "1")]
    assert (await reader.send(page)).created == 2, "the same commit may be tried again"


async def test_a_sweep_finds_what_changed_and_what_is_gone(reader: Reader) -> None:
    await reader.commit(*(record(str(n)) for n in range(5)), cursor="4")
    await reader.events()
    done = await reader.commit(record("0"), record("1", "b"), cursor="1", sweep=True, begin=True)
    assert (done.changed, done.unchanged, done.deleted) == (1, 1, 0)
    state = await reader.state()
    assert (state.sweep, state.sweeping, state.sweep_cursor, state.cursor) == (1, True, "1", "4")
    await reader.commit(record("9"), cursor="9")  # a record that arrived meanwhile is not deleted
    done = await reader.commit(record("3"), sweep=True, last=True)
    assert (done.unchanged, done.deleted, done.more) == (1, 2, False)
    assert await reader.events() == [("changed", "1"), ("created", "9"), ("deleted", "2"), ("deleted", "4")]
    state = await reader.state()
    assert (state.sweeping, state.sweep_cursor, state.cursor, state.records) == (False, None, "9", 4)
    assert state.swept_at is not None
    done = await reader.commit(record("2"), cursor="9")
    assert done.created == 1, "what was gone and comes back is new"


async def test_a_deleted_event_has_the_record_of_the_last_event_in_the_same_partition(reader: Reader) -> None:
    def in_lane(text: str) -> SourceRecord:
        return msgspec.structs.replace(record("2", text), partition="lane")

    await reader.commit(record("1"), in_lane("a"))
    await reader.commit(in_lane("b"))
    await reader.commit(in_lane("b"), sweep=True, begin=True)
    found = await reader.commit(sweep=True, last=True)
    assert found.deleted == 1
    await reader.commit(sweep=True, begin=True, last=True)
    events: dict[str, list[tuple[str, Any]]] = {}
    while batch := await reader.broker.pop(reader.queue, batch=100, partitions=100, auto_ack=True):
        for message in batch:
            data = msgspec.json.decode(message.raw)
            events.setdefault(message.partition, []).append((data["event"], data["record"]["text"]))
    assert events == {
        "1": [("created", "a"), ("deleted", "a")],
        "lane": [("created", "a"), ("changed", "b"), ("deleted", "b")],
    }


async def test_records_that_are_gone_are_told_of_in_steps_of_bounded_size(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "GONE_BYTES_MAX", 1500)
    await reader.commit(*(record(str(n), "x" * 600) for n in range(5)), record("5", "x" * 5000))
    await reader.events()
    steps = [await reader.commit(sweep=True, begin=True, last=True)]
    while steps[-1].more:
        steps.append(await reader.commit(sweep=True, last=True))
    assert [step.deleted for step in steps] == [2, 2, 1, 1], "at least one, however large"
    assert len(await reader.events()) == 6


async def test_what_was_known_of_a_record_is_forgotten_with_it(harness: Harness, reader: Reader) -> None:
    async def copies() -> list[str]:
        source = await harness.store.sources.get(DEFAULT_TENANT, reader.name)
        assert source is not None
        ids.add(source.id)
        rows = await harness.backend.sql(
            "SELECT c.key FROM fairlane.shadow_copies c WHERE c.source_id = $1 ORDER BY c.key", source.id
        )
        return [row[0] for row in rows]

    ids: set[int] = set()
    await reader.commit(record("1"), record("2"))
    assert await copies() == ["1", "2"]
    await reader.commit(record("1"), sweep=True, begin=True, last=True)
    assert await copies() == ["1"]
    await reader.broker.sources.delete(reader.name)
    for id in ids:
        assert not await harness.backend.sql("SELECT key FROM fairlane.shadow_copies WHERE source_id = $1", id)


async def test_a_sweep_goes_on_where_it_was_after_its_poller_died(harness: Harness, reader: Reader) -> None:
    await reader.commit(*(record(str(n)) for n in range(4)), cursor="3")
    await reader.commit(record("0"), cursor="0", sweep=True, begin=True)
    await reader.events()
    harness.clock.advance(61)
    other = Reader(reader.broker, reader.name, reader.queue)
    source = await other.lease()
    assert (source.sweeping, source.sweep_cursor, source.records) == (True, "0", 4)
    done = await other.commit(record("1"), record("3"), sweep=True, last=True)
    assert (done.deleted, await reader.events()) == (1, [("deleted", "2")])


async def test_many_that_are_gone_are_told_of_in_bounded_steps(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "GONE_MAX", 2)
    await reader.commit(*(record(str(n)) for n in range(6)), cursor="5")
    await reader.events()
    done = await reader.commit(record("5"), sweep=True, begin=True, last=True)
    steps = [done]
    while steps[-1].more:
        steps.append(await reader.commit(sweep=True, last=True))
    assert sum(step.deleted for step in steps) == 5
    assert max(step.deleted for step in steps) == 2
    assert await reader.events() == [("deleted", str(n)) for n in range(5)]
    state = await reader.state()
    assert (state.sweeping, state.records) == (False, 1)


async def test_of_two_records_with_one_key_in_a_page_the_last_counts(reader: Reader) -> None:
    assert (await reader.commit(record("1", "a"), record("1", "b"))).created == 1
    assert (await reader.commit(record("1", "b"))).unchanged == 1
    assert await reader.events() == [("created", "1")]


async def test_a_source_that_is_deleted_is_forgotten_with_its_records(reader: Reader) -> None:
    await reader.commit(record("1"), cursor="1")
    assert await reader.broker.sources.delete(reader.name)
    assert not await reader.broker.sources.delete(reader.name)
    with pytest.raises(NotFound):
        await reader.state()
    source = await reader.lease()
    assert (source.cursor, source.records, source.revision) == (None, 0, "")
    assert (await reader.commit(record("1"), cursor="1")).created == 1


async def test_what_is_no_commit_is_refused(reader: Reader) -> None:
    for wrong in (
        {"cursor": "a\0b"},
        {"queue": ""},
        {"records": [record("")]},
        {"records": [SourceRecord(key="1", hash="", data=msgspec.Raw(b"1"))]},
        {"last": True},
        {"revision": ""},
    ):
        with pytest.raises(InvalidRequest):
            await reader.send(msgspec.structs.replace(reader.page(record("1")), **wrong))
    assert (await reader.state()).revision == ""


async def test_hashes_of_another_rule_tell_nothing_and_are_taken_over(reader: Reader) -> None:
    def ruled(text: str, rule: str) -> SourceRecord:
        return SourceRecord(key="1", hash=f"{text}#{rule}", data=msgspec.Raw(b"{}"))

    assert (await reader.commit(ruled("a", "x"))).created == 1
    done = await reader.commit(ruled("b", "y"))
    assert (done.changed, done.unchanged) == (0, 1)
    assert (await reader.commit(ruled("b", "y"))).changed == 0
    assert (await reader.commit(ruled("c", "y"))).changed == 1
    assert await reader.events() == [("changed", "1"), ("created", "1")]
