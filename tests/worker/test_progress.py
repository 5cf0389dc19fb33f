"""`ctx.progress`: what a handler reports is shown while it runs, and sent at most once a second."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fairlane import App, Client, Context, InvalidRequest
from fairlane.runtime import progress
from tests.until import until
from tests.worker.conftest import Running


async def test_the_progress_of_a_coroutine_is_shown_while_it_runs(client: Client, queue: str, running: Running) -> None:
    app, wait = App(), threading.Event()

    @app.handler(queue)
    async def work(n: int, ctx: Context) -> None:
        ctx.progress(0.4, "page 2 of 5")
        await asyncio.to_thread(wait.wait)

    pushed = await client.push(queue, 0)
    async with running(app):
        found = await until(pushed.progress)
        assert (found.fraction, found.text) == (0.4, "page 2 of 5")
        assert pushed.partition is not None
        shown = await client.messages.get(str(pushed.partition), pushed.transaction_id)
        assert [group.progress for group in shown.consumer_groups] == [found]
        wait.set()
        await pushed.result(timeout=60)
    assert await pushed.progress() is None


async def test_many_reports_are_sent_as_one(client: Client, queue: str, running: Running, monkeypatch: Any) -> None:
    app, sent, wait = App(), list[list[Any]](), threading.Event()
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.01)

    @app.handler(queue)
    def work(n: int, ctx: Context) -> None:
        for done in range(10_000):
            ctx.progress(done / 10_000)
        ctx.progress(1)
        wait.wait()

    await client.push(queue, 0)
    async with running(app) as worker:
        await until(lambda: bool(worker.consumers))
        [consumer] = worker.consumers
        report = consumer.verbs.messages.report_progress

        async def seen(items: list[Any]) -> int:
            sent.append(items)
            return int(await report(items))

        monkeypatch.setattr(consumer.verbs.messages, "report_progress", seen)
        await until(lambda: bool(sent) and sent[-1][0].fraction == 1)
        wait.set()
    assert len(sent) < 1000
    assert all(len(items) == 1 for items in sent)


@pytest.mark.parametrize("wrong", [(-0.1,), (1.1,), ("half",), (True,), (float("nan"),), (0.5, "x" * 201), (0.5, 7)])
async def test_what_is_no_progress_fails_the_handler(
    client: Client, queue: str, running: Running, wrong: tuple[Any, ...]
) -> None:
    app, errors = App(), list[Exception]()

    @app.handler(queue)
    async def work(n: int, ctx: Context) -> None:
        try:
            ctx.progress(*wrong)
        except InvalidRequest as error:
            errors.append(error)

    pushed = await client.push(queue, 0)
    async with running(app):
        await pushed.result(timeout=60)
    assert len(errors) == 1
