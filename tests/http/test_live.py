"""The live stream: answers of the API as they change."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlane.http import live
from fairlane.http.live import difference
from fairlane.http.router import Route
from tests.http.events import listening, patched
from tests.http.wire import Wire
from tests.until import until

OVERVIEW = "/api/v1/resources/overview"
ENGINE = "/api/v1/status/engine"


def asked(wire: Wire, path: str, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Count the requests for a path from now on."""
    calls: list[None] = []
    routes = wire.app.router.static
    route: Route = routes["GET", path.encode()]

    async def counting(app: Any, request: Any) -> Any:
        calls.append(None)
        return await route.endpoint(app, request)

    changed = {name: getattr(route, name) for name in route.__struct_fields__} | {"endpoint": counting}
    monkeypatch.setattr(wire.app.router, "match", lambda _: Route(**changed))
    return calls


async def test_a_change_comes_to_whoever_watches(wire: Wire) -> None:
    queue = wire.name()
    path = f"/api/v1/resources/queues/{quote(queue, safe='')}"
    await wire.push(queue, 1)
    async with listening(wire, path, OVERVIEW) as events:
        kind, first = await events.next()
        assert (kind, first["status"]) == ("snapshot", 200)
        await events.until(path, lambda body: body["totals"]["pending"] == 1)
        await wire.push(queue, 2, 3)
        found = await events.until(path, lambda body: body["totals"]["pending"] == 3)
        assert found["name"] == queue
        await events.until(OVERVIEW, lambda body: body["messages"]["pending"] >= 3)
        assert ("change", path) in [(kind, event["path"]) for kind, event in events.came]


async def test_what_is_put_together_is_what_the_api_answers(wire: Wire) -> None:
    queue = wire.name()
    path = f"/api/v1/resources/queues/{quote(queue, safe='')}"
    await wire.push(queue, *range(5))
    async with listening(wire, path) as events:
        await wire.ack(await wire.pop(queue))
        await wire.push(queue, 6, partition="other")
        plain = (await wire.get(path)).ok()
        assert await events.until(path, lambda body: body == plain) == plain


async def test_an_error_is_told_and_the_stream_goes_on(wire: Wire) -> None:
    queue = wire.name()
    path = f"/api/v1/resources/queues/{quote(queue, safe='')}"
    async with listening(wire, path) as events:
        kind, event = await events.next()
        assert (kind, event["status"], event["body"]["code"]) == ("problem", 404, "not_found")
        await wire.push(queue, 1)
        kind, event = await events.next()
        assert (kind, event["status"]) == ("snapshot", 200)


async def test_a_payload_cannot_make_an_event(wire: Wire) -> None:
    queue = wire.name()
    body = b'{"items":[{"queue":"lines","payload":{"a":\r\n\r\n1}}]}'
    text = "\n\nevent: problem\ndata: {}\n\n"
    await wire.push(queue, {"text": text})
    assert (await wire.ask("POST", "/api/v1/push", body=body)).status == 201
    found = [(await wire.pop(name))[0] for name in (queue, "lines")]
    paths = [f"/api/v1/messages/{one['partitionId']}/{one['transactionId']}" for one in found]
    async with listening(wire, *paths) as events:
        payloads = [(await events.until(path, bool))["payload"] for path in paths]
        assert payloads == [{"text": text}, {"a": 1}]
        assert {kind for kind, _ in events.came} == {"snapshot"}
        assert b"\r" not in events.raw


async def test_a_path_is_asked_for_once_however_many_watch_and_never_while_nobody_does(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "REFRESH_SECONDS", 3600.0)
    calls = asked(wire, OVERVIEW, monkeypatch)
    async with listening(wire, OVERVIEW) as one, listening(wire, OVERVIEW) as two, listening(wire, OVERVIEW) as three:
        assert [(await each.next())[0] for each in (one, two, three)] == ["snapshot"] * 3
        assert len(calls) == 1

    def tasks() -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() if task.get_name().startswith("fairlane live")]

    await until(lambda: not tasks())
    assert len(calls) == 1
    async with listening(wire, OVERVIEW) as again:
        await again.next()
        assert len(calls) == 2


async def test_nothing_is_sent_while_nothing_changes(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESH_SECONDS", 0.001)
    monkeypatch.setattr(live, "COMMENT_SECONDS", 0.3)
    calls = asked(wire, "/api/v1/schedules", monkeypatch)
    async with listening(wire, "/api/v1/schedules") as events:
        await events.next()
        before = len(calls)
        ended = asyncio.create_task(events.next())
        await until(lambda: len(calls) > before + 3 and b":\n\n" in events.raw)
        assert not ended.done()
        assert len(events.came) == 1
        ended.cancel()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/pop/queue/orders", "not_live"),
        ("/nowhere", "not_live"),
        ("/api/v1/live?watch=/health", "not_live"),
        ("/metrics", "not_live"),
        ("https://example.com/api/v1/resources/overview", "not_live"),
        (f"{OVERVIEW}?no=1", "invalid_request"),
        ("/api/v1/resources/queues/%ff", "invalid_request"),
        ("\n\nü", "not_live"),
    ],
)
async def test_of_what_cannot_be_watched_that_is_told_and_the_rest_goes_on(wire: Wire, path: str, code: str) -> None:
    async with listening(wire, path, ENGINE) as events:
        assert (await events.until(path, bool))["code"] == code
        assert "connections" in await events.until(ENGINE, bool)


@pytest.mark.parametrize("count", [0, 17])
async def test_a_stream_has_one_path_and_not_very_many(wire: Wire, count: int) -> None:
    query = "&".join(f"watch=/api/v1/resources/queues/{number}" for number in range(count))
    (await wire.get(f"/api/v1/live?{query}")).refused(400)


async def test_streams_are_bounded(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS_MAX", 1)
    async with listening(wire, ENGINE) as events:
        await events.next()
        refused = await wire.get(f"/api/v1/live?watch={ENGINE}")
        refused.refused(429)
        assert "Retry-After" in refused.headers
    await until(lambda: wire.app is not None and not wire.app.live._streams)


async def test_a_head_begins_no_stream(wire: Wire) -> None:
    answer = await wire.ask("HEAD", f"/api/v1/live?watch={ENGINE}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    assert not wire.app.live._streams


async def test_streams_end_when_the_broker_drains(wire: Wire) -> None:
    assert wire.app.server is not None
    async with listening(wire, ENGINE) as events:
        await events.next()
        wire.app.server.stop_listening()
        with pytest.raises(EOFError):
            await events.until("never", bool)


def test_watching_takes_a_share_of_the_time_that_does_not_grow() -> None:
    """The number of watched paths and the time that each takes do not matter."""

    class One:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

    for times in ([0.001] * 5, [0.001] * 1000, [0.5, 0.001], [2.0] * 100, [0.0]):
        watching = live.Live.__new__(live.Live)
        watching._watched = {str(number): One(seconds) for number, seconds in enumerate(times)}  # type: ignore[misc]
        rests = [watching._pause_seconds(one) for one in watching._watched.values()]
        assert sum(one / rest for one, rest in zip(times, rests, strict=True)) < 0.04
        assert min(rests) >= live.REFRESH_SECONDS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(OBJECTS, OBJECTS)
def test_a_difference_gives_the_later_from_the_earlier(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = difference(before, after)
    if patch is None:
        assert "None" in str(after)
    else:
        assert patched(before, patch) == after
