"""Tracebacks of failed handlers: on the dead letter and the message, without anything of the payload."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from fairlane import App, Client, Dead, Fail
from fairlane.model.limits import TRACEBACK_BYTES_MAX
from fairlane.model.message import Message
from fairlane.model.tracebacks import frames_of
from fairlane.testing import AppTest
from tests.worker import jobs

SECRET = "4111-1111"


def charge(card: str) -> None:
    raise ValueError(f"the card {card} was refused")


def convert(data: dict[str, str]) -> None:
    try:
        charge(data["card"])
    except ValueError as error:
        raise RuntimeError(f"cannot convert {data}") from error


def meanwhile(data: dict[str, str]) -> None:
    try:
        charge(data["card"])
    except ValueError:
        known: dict[str, str] = {}
        known[data["card"]]


async def grouped(data: dict[str, str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(0))
        tasks.create_task(asyncio.to_thread(charge, data["card"]))


async def coroutine(data: dict[str, str]) -> None:
    convert(data)


async def batch(data: list[dict[str, str]]) -> None:
    convert(data[0])


def endless(data: dict[str, str]) -> None:
    to_and(data)


def to_and(data: dict[str, str]) -> None:
    fro(data)


def fro(data: dict[str, str]) -> None:
    to_and(data)


def app_of(handler: Any, **options: Any) -> App:
    app = App()
    kind = app.batch if handler is batch else app.handler
    kind("q", max_attempts=2, **options)(handler)
    return app


async def errors_of(app: App) -> list[tuple[str, str]]:
    """Push a message that fails twice, and return its errors with their tracebacks."""
    async with AppTest(app) as test:
        pushed = await test.push("q", {"card": SECRET})
        await test.drain()
        [summary] = await test.dead_letters("q")
        assert all(one.traceback is None for one in summary.errors)
        letter = await test.client.dead_letters.get("q", summary.id)
        message = await test.client.messages.get(summary.partition_id, pushed.transaction_id)
        assert message.errors == letter.errors
        return [(one.error, one.traceback or "") for one in letter.errors]


@pytest.mark.parametrize(
    ("handler", "functions", "errors"),
    [
        (coroutine, ["convert", "charge", "coroutine", "convert"], ["ValueError", "RuntimeError"]),
        (convert, ["convert", "charge", "convert"], ["ValueError", "RuntimeError"]),
        (batch, ["convert", "charge", "batch", "convert"], ["ValueError", "RuntimeError"]),
        (meanwhile, ["meanwhile", "charge", "meanwhile"], ["ValueError", "KeyError"]),
        (grouped, ["charge", "grouped"], ["ValueError", "ExceptionGroup"]),
    ],
)
async def test_a_failed_handler_leaves_its_frames_and_no_payload(
    handler: Any, functions: list[str], errors: list[str]
) -> None:
    found = await errors_of(app_of(handler))
    assert len(found) == 2
    for error, traceback in found:
        lines = traceback.splitlines()
        own = [line.rpartition(" in ")[2] for line in lines if f'"{__file__}"' in line]
        assert own == functions
        assert [line for line in lines if line in errors] == errors
        assert error.startswith(errors[-1])
        assert lines[-1] == errors[-1]
        assert SECRET not in traceback
        assert "fairlane/worker" not in traceback
        assert "concurrent/futures/_base" not in traceback


@pytest.mark.parametrize("handler", [coroutine, convert])
async def test_the_log_shows_the_handler_and_not_what_called_it(handler: Any, caplog: pytest.LogCaptureFixture) -> None:
    await errors_of(app_of(handler))
    [first, _] = [one for one in caplog.records if one.getMessage().startswith("handler failed")]
    shown = logging.Formatter().format(first)
    assert "in convert" in shown
    assert "fairlane/worker" not in shown
    assert "fairlane/runtime" not in shown


async def test_a_handler_in_a_process_leaves_its_frames_too() -> None:
    for _, traceback in await errors_of(app_of(jobs.refuse, processes=True)):
        assert f'File "{jobs.__file__}"' in traceback
        assert traceback.splitlines()[-1] == "ValueError"
        assert SECRET not in traceback


async def test_only_the_newest_frames_of_a_deep_recursion_are_kept() -> None:
    for error, traceback in await errors_of(app_of(endless)):
        assert error.startswith("RecursionError")
        assert len(traceback.encode()) <= TRACEBACK_BYTES_MAX
        assert traceback.endswith("\nRecursionError")
        assert {"in to_and", "in fro"} <= {line.rpartition(", ")[2] for line in traceback.splitlines()}


async def test_a_verdict_has_no_traceback() -> None:
    async def refuse(data: dict[str, str]) -> Fail | Dead:
        return Dead("no such card")

    assert await errors_of(app_of(refuse)) == [("no such card", "")]


async def test_a_consumer_of_a_client_sends_its_frames(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    await client.push(queue, {"card": SECRET})

    async def handle(message: Message[Any]) -> None:
        convert(message.data)

    await client.consume(queue, handle, idle_seconds=0.1)
    [letter] = await client.dead_letters.page(queue)
    [error] = (await client.dead_letters.get(queue, letter.id)).errors
    assert error.traceback is not None
    assert error.traceback.endswith("\nRuntimeError")


def test_an_error_of_fairlane_alone_has_no_frames() -> None:
    try:
        Client("not a url")
    except ValueError as error:
        raised: BaseException = error
    except Exception as error:
        raised = error
    assert (frames_of(raised) or "").count("  File") == 1  # that of this test
    assert frames_of(ValueError("never raised")) is None
