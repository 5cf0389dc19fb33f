"""Each new, changed or deleted record of an API becomes one message."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from typing import Any

import msgspec
import pytest

from fairlane.client.sources import Sources
from fairlane.errors import Conflict, FairlaneError, InvalidRequest, Overloaded, Unavailable
from fairlane.poller import Poller, Source
from fairlane.wire.sources import SourceView
from tests.poller.conftest import Polling

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("/id", {}),
    (
        "/token",
        {
            "paging": "token",
            "items": "result.data",
            "next": "meta.next",
            "total": "meta.total",
            "cursor_param": "cursor",
            "size_param": "limit",
        },
    ),
    ("/link", {"paging": "link"}),
]
ways = pytest.mark.parametrize(("path", "way"), WAYS, ids=[path.strip("/") for path, _ in WAYS])


def created(*keys: int) -> Counter[tuple[str, str]]:
    return Counter({("created", str(key)): 1 for key in keys})


@ways
async def test_all_pages_are_read_then_only_what_is_new_and_a_sweep_finds_the_rest(
    polling: Polling, path: str, way: dict[str, Any]
) -> None:
    first = await polling.once(path, **way)
    assert (first.created, first.records) == (35, 35)
    assert first.total == (35 if path == "/token" else None)
    events = created(*range(1, 36))
    assert await polling.events() == events
    polling.api.records[40] = {"id": 40, "text": "new"}
    polling.api.records[3] = {"id": 3, "text": "second"}
    del polling.api.records[5]
    asked = len(polling.api.asked)
    assert (await polling.once(path, **way)).created == 1
    assert len(polling.api.asked) - asked <= 2, "what was read is not read again"
    swept = await polling.once(path, sweep=True, **way)
    assert (swept.created, swept.changed, swept.deleted) == (0, 1, 1)
    events += Counter({("created", "40"): 1, ("changed", "3"): 1, ("deleted", "5"): 1})
    assert await polling.events() == events
    source = await polling.test.client.sources.get("source")
    assert (source.records, source.sweeping) == (35, False)


@ways
async def test_drops_repeats_and_refusals_of_the_api_change_nothing(
    polling: Polling, path: str, way: dict[str, Any]
) -> None:
    polling.api.faults.extend(["drop", None, "half", "busy", None, "repeat", "broken", None])
    assert (await polling.once(path, **way)).created == 35
    assert not polling.api.faults
    polling.api.faults.extend([None, None, "repeat", "drop"])
    assert (await polling.once(path, sweep=True, **way)).deleted == 0
    assert await polling.events() == created(*range(1, 36))


async def test_the_api_is_asked_again_no_sooner_than_it_asks_for(polling: Polling) -> None:
    polling.api.faults.append("busy")
    polling.api.retry_after = "0.4"
    began = time.monotonic()
    await polling.once()
    assert time.monotonic() - began >= 0.4
    polling.api.faults.append("busy")
    polling.api.retry_after = "3600"
    with pytest.raises(Overloaded) as refused:
        await polling.once()
    assert refused.value.retry_after == 3600


async def test_a_lease_is_kept_though_a_renewal_fails_unexpectedly(
    polling: Polling, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals, held = [], asyncio.Event()
    works = Sources.lease

    async def lease(sources: Sources, name: str, *, seconds: int, token: int | None = None) -> SourceView:
        if token is not None:
            renewals.append(token)
            if len(renewals) == 1:
                raise RuntimeError("a defect")
            held.set()
        return await works(sources, name, seconds=seconds, token=token)

    async def wait(asked: Any, what: str) -> None:
        await held.wait()

    monkeypatch.setattr(Sources, "lease", lease)
    polling.api.meet = wait
    async with asyncio.timeout(30):
        assert (await polling.once(lease_seconds=3)).created == 35


async def test_an_api_that_fails_is_asked_again_after_growing_delays(polling: Polling) -> None:
    times: list[float] = []

    async def note(asked: Any, what: str) -> None:
        if what == "asked":
            times.append(time.monotonic())

    polling.api.meet = note
    polling.api.faults.extend(["broken", "broken", "broken"])
    assert (await polling.once()).created == 35
    delays = [later - earlier for earlier, later in itertools.pairwise(times[:4])]
    assert [delay >= least for delay, least in zip(delays, (0.1, 0.2, 0.4), strict=True)] == [True] * 3


async def test_a_record_that_goes_while_pages_are_read_is_told_of_once_or_never(polling: Polling) -> None:
    async def delete(asked: Any, what: str) -> None:
        if what == "asked" and asked.query.get("after") == "10":
            for key in (8, 10, 15):  # one that was read, the one at the cursor, one that will never be read
                polling.api.records.pop(key, None)

    polling.api.meet = delete
    assert (await polling.once()).created == 34
    assert (await polling.once(sweep=True)).deleted == 2
    assert (await polling.once(sweep=True)).deleted == 0
    expected = created(*(n for n in range(1, 36) if n != 15)) + Counter({("deleted", "8"): 1, ("deleted", "10"): 1})
    assert await polling.events() == expected


async def test_a_cursor_that_the_api_refuses_begins_anew_and_doubles_nothing(polling: Polling) -> None:
    path, way = WAYS[1]
    await polling.once(path, **way)
    api, answer = polling.api, polling.api._token
    api._token = lambda query: answer({**query, "cursor": "gone"} if "cursor" in query else query)  # type: ignore[method-assign]
    api.records[41] = {"id": 41, "text": "new"}
    api.records[2] = {"id": 2, "text": "second"}
    with contextlib.suppress(Unavailable):  # only the first page of this API is available
        await polling.once(path, **way)
    assert await polling.events() == created(*range(1, 36)) + Counter({("changed", "2"): 1})


async def test_an_api_that_repeats_one_page_for_ever_is_not_believed(polling: Polling) -> None:
    await polling.once()
    polling.api.faults.extend([None, None, *(["repeat"] * 3)])
    with pytest.raises(Unavailable, match="repeats its pages"):
        await polling.once(sweep=True)
    assert set(await polling.events()) == set(created(*range(1, 36)))
    assert (await polling.test.client.sources.get("source")).sweeping
    assert (await polling.once()).deleted == 0, "the sweep goes on where it was"
    assert not (await polling.test.client.sources.get("source")).sweeping


async def test_a_sweep_that_finds_nothing_at_all_is_believed_only_if_that_may_be(polling: Polling) -> None:
    await polling.once()
    polling.api.records.clear()
    with pytest.raises(Unavailable, match="its 35 known records stay"):
        await polling.once(sweep=True)
    assert (await polling.test.client.sources.get("source")).records == 35
    assert (await polling.once(sweep=True, may_be_empty=True)).deleted == 35


async def test_a_sweep_that_is_not_believed_does_not_keep_a_poller_from_new_records(polling: Polling) -> None:
    await polling.once()
    records = dict(polling.api.records)
    polling.api.records.clear()
    running = asyncio.create_task(polling.poller(every_seconds=0.01, sweep_seconds=0.01).run())
    try:
        async with asyncio.timeout(30):
            asked = len(polling.api.asked)
            while len(polling.api.asked) < asked + 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            polling.api.records.update({**records, 40: {"id": 40, "text": "new"}})
            while ("created", "40") not in await polling.events():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_fields_that_make_no_difference_and_the_order_of_fields_change_nothing(polling: Polling) -> None:
    await polling.once(ignore=["seen"])
    polling.api.records[1] = {"seen": 5, "text": "first", "id": 1}
    assert (await polling.once(sweep=True, ignore=["seen"])).changed == 0
    polling.api.records[1]["text"] = "second"
    assert (await polling.once(sweep=True, ignore=["seen"])).changed == 1


async def test_records_do_not_change_because_other_fields_are_ignored(polling: Polling) -> None:
    await polling.once()
    for ignore in (["text"], ["text", "etag"], ["etag", "text"], []):
        done = await polling.once(sweep=True, ignore=ignore)
        assert (done.created, done.changed) == (0, 0), ignore
    polling.api.records[3] = {"id": 3, "text": "second"}
    assert (await polling.once(sweep=True)).changed == 1, "what was hashed anew is compared again"
    assert set((await polling.events()).values()) == {1}


async def test_one_poller_reads_a_source_at_a_time_and_another_stands_by(polling: Polling) -> None:
    more: dict[str, Any] = {"every_seconds": 0.05, "sweep_seconds": None, "lease_seconds": 1}
    first = asyncio.create_task(polling.poller(**more).run())
    async with asyncio.timeout(10):
        while not await polling.events():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(Conflict, match="another poller"):
        await polling.once()
    second = asyncio.create_task(polling.poller(**more).run())
    first.cancel()
    await asyncio.wait([first])
    polling.api.records[50] = {"id": 50}
    async with asyncio.timeout(10):
        while ("created", "50") not in await polling.events():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    second.cancel()
    await asyncio.wait([second])
    assert await polling.events() == created(*range(1, 36), 50)


async def test_a_full_queue_holds_the_poller_and_loses_nothing(polling: Polling) -> None:
    await polling.test.client.queues.configure("events", max_size=20)
    polled = asyncio.create_task(polling.once())
    seen: list[str] = []
    async with asyncio.timeout(30):
        while len(seen) < 35:
            batch = await polling.test.client.pop("events", batch=20, partitions=20, auto_ack=True)
            seen += [message.data["key"] for message in batch]
            await asyncio.sleep(0.02)
    assert (await polled).created == 35
    assert sorted(map(int, seen)) == list(range(1, 36))


async def test_a_poller_reaches_public_addresses_of_its_own_server_only(polling: Polling) -> None:
    with pytest.raises(InvalidRequest, match="not called over plain http"):
        await polling.once(allow_private=False)
    with pytest.raises(InvalidRequest, match="another server"):
        await polling.once("/away", paging="link")
    with pytest.raises(InvalidRequest, match="leads to /id"):
        await polling.once("/moved")
    assert await polling.events() == {}


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1", "127.1", "2130706433", "0"),
        *(
            "0177.0.0.1",
            "0x7f.1",
            "127\u30020\u30020\u30021",
            "169\u3002254\u3002169\u3002254",
            "\uff11\uff12\uff17.0.0.1",
        ),
        "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
    ],
)
async def test_no_spelling_of_an_address_inside_takes_a_poller_and_its_token_there(host: str, polling: Polling) -> None:
    port = polling.api.url.rpartition(":")[2]
    for scheme in ("http", "https"):
        source = msgspec.structs.replace(polling.source(allow_private=False), url=f"{scheme}://{host}:{port}/id")
        with pytest.raises(InvalidRequest):
            await Poller(source, polling.test.client.sources).once()
    assert not polling.api.asked


async def test_what_is_not_as_the_source_declares_it_is_said(polling: Polling) -> None:
    with pytest.raises(FairlaneError, match="no list of records at 'data'"):
        await polling.once(items="data")
    with pytest.raises(FairlaneError, match=r"record 0 .* has no 'uuid'"):
        await polling.once(id="uuid")
    polling.api.records[1] = {"id": None}
    with pytest.raises(FairlaneError, match="has no id at 'id' but None"):
        await polling.once()
    for wrong in ({"url": "ftp://x/"}, {"page_size": 0}, {"paging": "offset"}, {"every_seconds": 0}, {"name": ""}):
        with pytest.raises(InvalidRequest):
            Source(**{"name": "n", "url": "http://x/", "queue": "q", **wrong}).check()  # type: ignore[arg-type]
    assert await polling.events() == {}
