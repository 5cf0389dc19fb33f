"""Unexpected errors in a worker's own parts: none of them holds a lease for a handler that has ended, nor loses one
for a handler that runs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from fairlane import App, Client, Context
from fairlane.client.workers import Workers
from fairlane.model.outcome import RenewOutcome
from tests.until import until
from tests.worker.conftest import Running, until_drained


class Failing:
    """A method that raises an error of no known kind when it is first called, and works from then on."""

    def __init__(self, patch: pytest.MonkeyPatch, of: type, name: str) -> None:
        works, self.calls = getattr(of, name), 0

        def method(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("a defect")
            return works(*arguments, **named)

        patch.setattr(of, name, method)


class Renewals:
    """Renewals of each lease."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.of: Counter[str] = Counter()
        works = Client.renew

        async def renew(client: Client, lease: str, seconds: int) -> RenewOutcome:
            outcome = await works(client, lease, seconds)
            self.of[lease] += 1
            return outcome

        patch.setattr(Client, "renew", renew)


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Renewals:
    return Renewals(monkeypatch)


async def test_a_renewal_that_fails_unexpectedly_is_repeated(
    client: Client,
    queue: str,
    running: Running,
    renewals: Renewals,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, go_on, attempts = App(), threading.Event(), []

    @app.handler(queue, lease_seconds=3)
    def handle(number: int, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        go_on.wait(60)

    Failing(monkeypatch, Client, "renew")
    await client.push(queue, 1)
    async with running(app):
        await until(lambda: sum(renewals.of.values()) >= 2)
        go_on.set()
        await until_drained(client, queue)
    assert attempts == [1]
    [told] = [one for one in caplog.records if "cannot renew lease" in one.getMessage()]
    assert told.exc_info is not None, "somebody can find the defect"


async def test_a_renewal_without_an_answer_is_repeated_and_holds_up_no_other_lease(
    client: Client, queue: str, running: Running, renewals: Renewals, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, go_on, attempts, hung = App(), threading.Event(), [], set[str]()
    works = Client.renew

    async def hangs_once(client: Client, lease: str, seconds: int) -> RenewOutcome:
        if not hung:
            hung.add(lease)
            await asyncio.Event().wait()
        return await works(client, lease, seconds)

    @app.handler(queue, lease_seconds=4)
    def handle(number: int, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        go_on.wait(60)

    monkeypatch.setattr(Client, "renew", hangs_once)
    async with running(app):
        for number in (1, 2):  # one after the other, so that each has a lease of its own
            await client.push(queue, number, partition=str(number))
            await until(lambda number=number: len(attempts) == number)  # type: ignore[misc]
        await until(lambda: len(renewals.of) == 2 and min(renewals.of.values()) >= 2)
        go_on.set()
        await until_drained(client, queue)
    assert hung
    assert attempts == [1, 1]


async def test_a_heartbeat_that_fails_unexpectedly_is_repeated(
    client: Client, queue: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(queue[:50])

    @app.handler(queue)
    def handle(number: int) -> None: ...

    monkeypatch.setattr("fairlane.worker.worker.HEARTBEAT_SECONDS", 0.01)
    Failing(monkeypatch, Workers, "report")
    async with running(app):
        async with asyncio.timeout(30):
            while app.name not in {one.app for one in await client.workers.all()}:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_an_ack_that_fails_unexpectedly_does_not_hold_the_lease(
    client: Client, queue: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, handled = App(), []

    @app.handler(queue, lease_seconds=1)
    def handle(number: int) -> None:
        handled.append(number)

    Failing(monkeypatch, Client, "ack_and_pop")
    Failing(monkeypatch, Client, "ack_many")
    await client.push(queue, 1)
    async with running(app):
        await until_drained(client, queue)
    assert handled == [1, 1]


async def test_a_transaction_that_fails_unexpectedly_does_not_hold_the_lease(
    client: Client, queue: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, handled = App(), []

    @app.handler(queue, lease_seconds=3600)
    def handle(number: int, ctx: Context) -> None:
        handled.append(number)
        ctx.push(f"{queue}.next", number)

    Failing(monkeypatch, Client, "transaction")
    for number in (1, 2):
        await client.push(queue, number)
    async with running(app):
        await until_drained(client, queue)
    assert handled == [1, 1, 2]
    assert [one.data for one in await client.pop(f"{queue}.next", batch=9)] == [1, 2], "each was pushed once"


@pytest.mark.parametrize("error", [None, ValueError(), StopIteration(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("plain", [True, False])
async def test_no_lease_is_renewed_for_a_handler_that_has_ended(
    client: Client, queue: str, running: Running, renewals: Renewals, error: BaseException | None, *, plain: bool
) -> None:
    app, go_on, leases = App(), threading.Event(), {}

    def work(name: str, ctx: Context) -> None:
        leases[name] = ctx.lease
        if name == "long":
            go_on.wait(60)
        elif error is not None:
            raise error

    async def work_async(name: str, ctx: Context) -> None:
        leases[name] = ctx.lease
        if name == "long":
            await asyncio.to_thread(go_on.wait, 60)
        elif error is not None:
            raise error

    app.handler(queue, lease_seconds=1, max_attempts=1)(work if plain else work_async)
    await client.push(queue, "short", partition="short")
    async with running(app) as worker:
        await until(lambda: "short" in leases and not worker.consumers[0].claims)
        before = renewals.of[leases["short"]]
        await client.push(queue, "long", partition="long")
        await until(lambda: "long" in leases and renewals.of[leases["long"]] >= 5)
        assert renewals.of[leases["short"]] == before
        go_on.set()
        await until_drained(client, queue)
