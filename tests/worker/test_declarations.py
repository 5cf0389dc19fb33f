"""Mistakes in handler declarations, which are refused before the first pop, and return values of handlers."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import App, Client, Dead, Done
from fairlane.errors import InvalidRequest
from fairlane.model.message import Message
from fairlane.worker import Worker
from tests.broker_process import FAIRLANE
from tests.worker.conftest import Running, until_drained


def plain(data: int) -> None: ...


def generating(data: int) -> Iterator[int]:
    yield data


async def generating_async(data: int) -> AsyncIterator[int]:
    yield data


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda app: app.handler(plain), '@app.handler("orders")'),
        (lambda app: app.batch(plain), '@app.batch("orders")'),
        (lambda app: app.command(plain), '@app.command("orders")'),
        (lambda app: app.every(plain), '@app.every("5m")'),
        (lambda app: app.handler("")(plain), "queue must not be empty"),
        (lambda app: app.handler("q", retries=3)(plain), "@app.handler has no option 'retries'"),
        (lambda app: app.handler("q", max_attempt=3)(plain), "did you mean `max_attempts`?"),
        (lambda app: app.command("q", group="g")(plain), "@app.command has no option 'group'"),
        (lambda app: app.every("5m", group="g")(plain), "@app.every has no option 'group'"),
        (lambda app: app.handler("q", timeout="30s")(plain), "timeout must be a number of seconds, not str"),
        (lambda app: app.handler("q", backoff=True)(plain), "backoff must be a number of seconds, not bool"),
        (lambda app: app.handler("q", backoff_max=None)(plain), "backoff_max must be a number of seconds"),
        (lambda app: app.handler("q", timeout=float("nan"))(plain), "timeout is nan"),
        (lambda app: app.handler("q", concurrency="3")(plain), "concurrency must be a whole number, not str"),
        (lambda app: app.handler("q", type=3)(plain), "type must be a string, not int"),
        (lambda app: app.handler("q", options={"max_sise": 3})(plain), "max_sise"),
        (lambda app: app.every(cron="61 * * * *")(plain), "cron is '61 * * * *'"),
        (lambda app: app.every(cron="0 0 30 2 *")(plain), "Bad day-of-month"),
        (lambda app: app.every(cron="0 0 * * *", timezone="Europe/Rom")(plain), "no time zone 'Europe/Rom'"),
        (lambda app: app.every("5m", missed="never")(plain), "missed is 'never'"),
        (lambda app: app.every("0s")(plain), "must be between 1"),
        (lambda app: app.handler("q")("plain"), "a handler must be a function, not str"),
        (lambda app: app.handler("q")(generating), "is a generator function"),
        (lambda app: app.handler("q")(generating_async), "is a generator function"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(declare: Callable[[App], Any], words: str) -> None:
    app = App()
    with pytest.raises(InvalidRequest) as refused:
        declare(app)
    assert words in str(refused.value)
    assert not app.handlers


class Clock: ...


def test_parameters_that_nothing_provides_are_refused_before_the_worker_starts() -> None:
    app = App()

    @app.handler("q")
    async def handle(data: int, clock: Clock) -> None: ...

    with pytest.raises(InvalidRequest, match="nothing provides parameter 'clock'"):
        Worker(app)
    app.provide(make_clock)
    Worker(app)


def make_clock() -> Clock:
    return Clock()


def test_a_plan_refuses_what_a_worker_would_refuse(tmp_path: Path) -> None:
    lines = ["from fairlane import App", "app = App()", "@app.handler('q')", "def handle(data: int, other: int): ..."]
    (tmp_path / "jobs.py").write_text("\n".join(lines))
    for flag in ("--plan", "--apply"):
        command = [FAIRLANE, "worker", "jobs:app", flag]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "nothing provides parameter 'other'" in done.stderr
        assert done.stdout == ""


async def later(done: list[Any], data: Any) -> Dead:
    done.append(data)
    return Dead("refused")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_coroutine_that_a_handler_returns_is_awaited(
    client: Client, queue: str, running: Running, kind: str
) -> None:
    app, done = App(), list[Any]()

    def in_a_thread(data: int) -> Any:
        return later(done, data)

    async def not_awaited(data: int) -> Any:
        return later(done, data)

    app.handler(queue)(in_a_thread if kind == "plain" else not_awaited)
    await client.push(queue, 1)
    async with running(app):
        await until_drained(client, queue)
    assert done == [1]
    assert [one.error for one in await client.dead_letters.page(queue)] == ["refused"]


async def test_a_value_that_is_not_kept_is_warned_of_once(
    client: Client, queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.handler(queue)
    def handle(data: int) -> Any:
        return {1: None, 2: Done("kept")}.get(data, {"secret": data})

    @app.batch(f"{queue}.batch")
    async def many(data: list[int]) -> Any:
        return ["retry" for _ in data]

    @app.command(f"{queue}.command")
    async def command(data: int) -> Any:
        return {"kept": data}

    for name in (queue, f"{queue}.batch", f"{queue}.command"):
        for number in range(1, 6):
            await client.push(name, number)
    async with running(app):
        for name in (queue, f"{queue}.batch", f"{queue}.command"):
            await until_drained(client, name)
    told = [one.getMessage() for one in caplog.records if "returned" in one.getMessage()]
    assert sorted(told) == sorted(
        [
            f"{handle.__qualname__} returned dict, which is not stored; return Done(value) to store it, or else None",
            f"{many.__qualname__} returned str, which is not stored; return Done(value) to store it, or else None",
        ]
    )


async def test_a_consumer_warns_of_a_value_that_is_not_kept(
    client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(message: Message[Any]) -> Any:
        return "retry"

    for number in range(3):
        await client.push(queue, number)
    await client.consume(queue, handle, limit=3)
    told = [one.getMessage() for one in caplog.records if "returned" in one.getMessage()]
    assert told == [
        f"{handle.__qualname__} returned str, which is not stored; return Done(value) to store it, or else None"
    ]
