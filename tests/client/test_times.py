"""Points in time in the forms that Python programs use: with a time zone, as text, or as a number."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fairlane import Client, InvalidRequest, PushItem, Seek, Subscription
from fairlane.errors import AlreadyExists
from fairlane.model.moment import When, micros_of
from tests.broker_process import BrokerProcess
from tests.client.rogue import Answer, Rogue

AT = datetime(2040, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
MICROS = 2_211_624_000_250_000
FORMS = [AT, AT.astimezone(timezone(timedelta(hours=5, minutes=30))), "2040-01-31T12:00:00.25Z", MICROS]
WRONG: list[tuple[Any, str]] = [
    (AT.replace(tzinfo=None), "without a time zone"),
    ("tomorrow", "'tomorrow'; it must be a time like 2026-01-31T12:00:00Z"),
    (1.5, "not float"),
    (True, "not bool"),
    (datetime(1969, 1, 1, tzinfo=UTC), "must be between 1970 and 2255"),
    ("9999-01-01T00:00:00Z", "must be between 1970 and 2255"),
]


@pytest.mark.parametrize("at", FORMS)
def test_a_time_is_the_same_in_every_form(at: When) -> None:
    assert micros_of("at", at) == MICROS
    assert Seek("time", at) == Seek("time", MICROS)
    assert Subscription("time", at) == Subscription("time", MICROS)


@pytest.mark.parametrize("at", FORMS)
async def test_a_message_is_scheduled_at_a_time_in_every_form(broker: BrokerProcess, queue: str, at: When) -> None:
    async with Client(broker.url) as client:
        one = await client.push(queue, 1, deliver_at=at, transaction_id="one")
        [many] = await client.push_many([PushItem(queue=queue, payload=b"1", deliver_at=at)])
        assert [one.deliver_at, many.deliver_at] == [MICROS, MICROS]
        await client.scheduled.reschedule(queue, "one", delay_ms=1_000_000)
        assert await client.scheduled.reschedule(queue, "one", deliver_at=at) == MICROS


async def test_a_delay_may_be_a_timedelta(broker: BrokerProcess, queue: str) -> None:
    async with Client(broker.url) as client:
        hour = timedelta(hours=1)
        before = datetime.now(UTC)
        outcomes = [
            await client.push(queue, 1, delay_ms=hour, transaction_id="one"),
            *await client.push_many([PushItem(queue=queue, payload=b"1", delay_ms=hour)]),
        ]
        moved = await client.scheduled.reschedule(queue, "one", delay_ms=timedelta(hours=2))
        for at, least in [(outcomes[0].deliver_at, hour), (outcomes[1].deliver_at, hour), (moved, 2 * hour)]:
            # A broker on this machine: the same clock, give or take a minute.
            assert micros_of("at", before + least - timedelta(minutes=1)) <= (at or 0)
        await client.push(queue, 1)
        batch = await client.pop(queue)
        await client.nack(batch, delay_ms=timedelta(0))
        assert await client.pop(queue)
        with pytest.raises(InvalidRequest, match="delayMs is -1000"):
            await client.push(queue, 1, delay_ms=timedelta(seconds=-1))


async def test_messages_and_groups_are_found_by_a_time_in_every_form(broker: BrokerProcess, queue: str) -> None:
    async with Client(broker.url) as client:
        await client.push(queue, 1)
        [message] = await client.pop(queue)
        created: list[When] = [
            message.created_at,
            message.created_at.isoformat(),
            datetime.fromisoformat(message.created_at.isoformat()),
        ]
        for number, at in enumerate(created):
            assert len((await client.messages.page(queue, since=at)).messages) == 1
            assert len(await client.pop(queue, group=f"g{number}", subscription=Subscription("time", at))) == 1
            assert await client.groups.seek(queue, f"g{number}", Seek("time", at)) == 1
        late = datetime.now(UTC) + timedelta(days=1)
        assert not (await client.messages.page(queue, since=late)).messages
        assert not await client.pop(queue, group="late", subscription=Subscription("time", late))


@pytest.mark.parametrize("at", FORMS)
async def test_a_key_expires_at_a_time_in_every_form(rogue: Rogue, at: When) -> None:
    rogue.do(Answer(409, {"error": "there is one", "code": "already_exists"}))
    async with Client(rogue.url) as client:
        with pytest.raises(AlreadyExists):
            await client.keys.create("key", role="read-only", expires_at=at)
    assert rogue.seen[-1].body["expiresAt"] == "2040-01-31T12:00:00.250000Z"


@pytest.mark.parametrize(("at", "reason"), WRONG)
@pytest.mark.parametrize(
    "use",
    [
        lambda client, at: client.push("q", 1, deliver_at=at),
        lambda client, at: client.push_many([PushItem(queue="q", payload=b"1", deliver_at=at)]),
        lambda client, at: client.scheduled.reschedule("q", "t", deliver_at=at),
        lambda client, at: client.pop("q", group="g", subscription=Subscription("time", at)),
        lambda client, at: client.groups.seek("q", "g", Seek("time", at)),
        lambda client, at: client.messages.page("q", since=at),
        lambda client, at: client.keys.create("name", role="admin", expires_at=at),
    ],
)
async def test_what_is_no_time_is_refused_before_anything_is_sent(
    at: Any, reason: str, use: Callable[[Client, Any], Any]
) -> None:
    async with Client("http://127.0.0.1:1", attempts=1) as client:
        with pytest.raises(InvalidRequest) as refused:
            await use(client, at)
    assert reason in str(refused.value)
