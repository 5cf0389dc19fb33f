"""Calls of handlers to other services: safe to repeat, and retried."""

from __future__ import annotations

import itertools

from fairlane import App, Client, Context, Dead
from tests.worker.conftest import Running, until_drained
from tests.worker.service import Asked, Service


async def test_a_job_attempted_three_times_creates_one_record(client: Client, queue: str, running: Running) -> None:
    """The service deduplicates on the Idempotency-Key; the first two attempts fail after their call."""
    records: dict[str, bytes] = {}

    def answer(asked: Asked) -> tuple[int, str, bytes]:
        return 201, "", records.setdefault(asked.headers["idempotency-key"], asked.body)

    app = App()
    attempts: list[int] = []
    async with Service(answer) as service:

        @app.handler(queue)
        async def handle(data: dict[str, int], ctx: Context) -> None:
            reply = (await ctx.http.post(service.url, json=data)).raise_for_status()
            assert reply.json() == {"order": 7}
            attempts.append(ctx.attempt)
            if ctx.attempt < 3:
                raise ValueError("after the call")

        await client.push(queue, {"order": 7}, transaction_id="t-7")
        async with running(app):
            await until_drained(client, queue)
        assert [asked.headers["x-correlation-id"] for asked in service.asked] == ["t-7"] * 3
    assert attempts == [1, 2, 3]
    assert list(records.values()) == [b'{"order":7}']


async def test_calls_that_meet_429_and_5xx_are_repeated_after_growing_delays(
    client: Client, queue: str, running: Running
) -> None:
    answers = [429, 500, 503, 200]

    def answer(asked: Asked) -> tuple[int, str, bytes]:
        return answers[len(service.asked) - 1], "", b"{}"

    app = App()
    attempts: list[int] = []
    async with Service(answer) as service:

        @app.handler(queue)
        def handle(number: int, ctx: Context) -> None:
            assert ctx.http.blocking.get(service.url).status == 200
            attempts.append(ctx.attempt)

        await client.push(queue, 1)
        async with running(app):
            await until_drained(client, queue)
        times = [asked.at for asked in service.asked]
    delays = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert attempts == [1]
    assert [delay >= least for delay, least in zip(delays, (0.1, 0.2, 0.4), strict=True)] == [True] * 3


async def test_a_service_that_says_how_long_to_wait_is_obeyed(client: Client, queue: str, running: Running) -> None:
    def answer(asked: Asked) -> tuple[int, str, bytes]:
        return (429, "Retry-After: 1\r\n", b"") if len(service.asked) == 1 else (200, "", b"")

    app = App()
    async with Service(answer) as service:

        @app.handler(queue)
        async def handle(number: int, ctx: Context) -> None:
            (await ctx.http.get(service.url)).raise_for_status()

        await client.push(queue, 1)
        async with running(app):
            await until_drained(client, queue)
        first, second = service.asked
    assert second.at - first.at >= 1.0


async def test_a_repeated_attempt_gets_the_first_result_of_what_was_done_once(
    client: Client, queue: str, running: Running
) -> None:
    app = App()
    done: list[str] = []
    got: list[object] = []

    @app.handler(queue)
    async def handle(data: dict[str, int], ctx: Context) -> None:
        async def charge() -> dict[str, int]:
            done.append("charge")
            return {"charge": len(done)}

        got.append(await ctx.once("charge", charge, type=dict[str, int]))
        if ctx.attempt < 3:
            raise ValueError("after the charge")

    @app.handler(f"{queue}.plain")
    def handle_plainly(data: dict[str, int], ctx: Context) -> None:
        got.append(ctx.once_blocking("charge", lambda: done.append("plain")))
        if ctx.attempt < 2:
            raise ValueError("after the charge")

    await client.push(queue, {"order": 7})
    await client.push(f"{queue}.plain", {"order": 7})
    async with running(app):
        await until_drained(client, queue)
        await until_drained(client, f"{queue}.plain")
    assert sorted(done) == ["charge", "plain"]
    assert sorted(map(str, got)) == sorted([str({"charge": done.index("charge") + 1})] * 3 + ["None"] * 2)


async def test_messages_that_say_the_same_are_each_worked_on_once(client: Client, queue: str, running: Running) -> None:
    """The work runs once for both only if the handler uses the hash of the content as its key."""
    app = App()
    charged: list[str] = []
    greeted: list[str] = []

    @app.handler(queue)
    async def handle(data: dict[str, int], ctx: Context) -> None:
        day = ctx.message.transaction_id

        async def charge() -> str:
            charged.append(day)
            return day

        async def greet() -> str:
            greeted.append(day)
            return day

        assert await ctx.once("charge", charge) == day
        assert await ctx.once("greet", greet, key=ctx.content_hash) == "monday"

    await client.push(queue, {"order": 7, "total": 1}, transaction_id="monday")
    await client.push(queue, {"total": 1, "order": 7}, transaction_id="tuesday")
    async with running(app):
        await until_drained(client, queue)
    assert (charged, greeted) == (["monday", "tuesday"], ["monday"])
    assert await client.dead_letters.page(queue) == []


async def test_each_group_does_its_own_work_once(client: Client, queue: str, running: Running) -> None:
    told: list[str] = []
    await client.push(queue, 1)
    for group in ("billing", "shipping"):
        app = App()

        @app.handler(queue, group=group)
        def handle(data: int, ctx: Context) -> None:
            ctx.once_blocking("tell", lambda: told.append(ctx.message.group))

        async with running(app):
            await until_drained(client, queue, group=group)
    assert told == ["billing", "shipping"]


async def test_a_dead_letter_that_is_replayed_does_nothing_again(client: Client, queue: str, running: Running) -> None:
    app = App()
    attempts: list[str] = []
    charged: list[str] = []

    @app.handler(queue)
    def handle(data: int, ctx: Context) -> Dead | None:
        attempts.append(ctx.idempotency_key)
        ctx.once_blocking("charge", lambda: charged.append(ctx.message.id))
        return Dead("after the charge") if len(attempts) < 3 else None

    await client.push(queue, 7)
    async with running(app):
        await until_drained(client, queue)
        for _ in range(2):
            assert len(await client.dead_letters.replay(queue)) == 1
            await until_drained(client, queue)
    assert len(attempts) == 3
    assert len(set(attempts)) == 1
    assert len(charged) == 1
