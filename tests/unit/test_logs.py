"""The log: of lines that are alike one a minute with a count of the rest, fields in JSON, no payload and no secret."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import fairlane
from fairlane.cli.processes.logs import SuppressingHandler, _JsonFormatter, _TextFormatter
from fairlane.model.ids import uuid7
from fairlane.otel import tracing

SOURCE = Path(fairlane.__file__).parent
NAMES = {
    *("queue", "partition", "partition_id", "group", "lease", "message_id", "transaction_id", "operation_ids"),
    *("request_id", "source", "schedule", "messages", "acks", "attempt", "seconds", "error", "code", "verb"),
    *(
        "action",
        "api",
        "app",
        "caller",
        "cell",
        "command",
        "count",
        "cursor",
        "deleted",
        "directory",
        "fan_in",
        "file",
        "files",
        "handler",
    ),
    *("host", "keys", "kind", "lanes", "lost", "most", "name", "number", "pause", "pid", "port", "queue_id", "scheme"),
    *("servers", "service", "setting", "state", "status", "store", "target", "text", "unread", "url", "value"),
    *("version", "versions", "warning", "workers"),
}
VERBS = {"debug", "info", "warning", "error", "exception", "critical"}
"""The fields of log lines: words of the glossary."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def out(clock: Clock) -> Iterator[io.StringIO]:
    out = io.StringIO()
    lines = SuppressingHandler(out, clock=clock)
    lines.setFormatter(_TextFormatter(None))
    loggers = [logging.getLogger(name) for name in ("fairlane.x", "asyncio")]
    for log in loggers:
        log.addHandler(lines)
        log.setLevel(logging.INFO)
    yield out
    for log in loggers:
        log.removeHandler(lines)
        log.setLevel(logging.NOTSET)
    lines.close()


def test_lines_that_are_alike_come_once_a_minute_with_a_count(out: io.StringIO, clock: Clock) -> None:
    log = logging.getLogger("fairlane.x")
    for second in range(59):
        clock.now = float(second)
        log.warning("cannot pop from queue %(queue)r, retrying in %(seconds).1f s", {"queue": "a", "seconds": second})
    log.warning("cannot pop from queue 'b', retrying in 1.0 s")
    log.info("an event")
    log.info("an event")
    assert [line[32:] for line in out.getvalue().splitlines()] == [
        "cannot pop from queue 'a', retrying in 0.0 s",
        "cannot pop from queue 'b', retrying in 1.0 s",
        *["an event"] * 2,
    ]
    clock.now = 60.0
    log.warning("cannot pop from queue 'a', retrying in 10.0 s")
    assert out.getvalue().endswith("queue 'a', retrying in 10.0 s (58 more like this since)\n")


def test_lines_about_different_messages_are_alike(out: io.StringIO) -> None:
    for _ in range(3):
        logging.getLogger("fairlane.x").warning("message %(id)s is a dead letter", {"id": uuid7()})
    assert len(out.getvalue().splitlines()) == 1


def test_what_was_left_out_is_told_when_other_lines_come(out: io.StringIO, clock: Clock) -> None:
    log = logging.getLogger("fairlane.x")
    for _ in range(3):
        log.error("no store")
    clock.now = 61.0
    log.info("store available again")
    told = [line[32:] for line in out.getvalue().splitlines()]
    assert told == ["no store", "no store (2 more like this)", "store available again"]


def test_a_lost_connection_is_a_line_of_the_driver_and_a_mistake_is_whole(out: io.StringIO) -> None:
    log = logging.getLogger("asyncio")
    for error in (
        ConnectionResetError(104, "Connection reset by peer"),
        asyncpg.PostgresError("gone\nDETAIL:  Failing row contains (marker)."),
        ZeroDivisionError("ours"),
    ):
        log.error("Future exception was never retrieved\nfuture: <Future finished>", exc_info=error)
    text = out.getvalue()
    assert "Future exception was never retrieved: ConnectionResetError: [Errno 104] Connection reset by peer\n" in text
    assert "PostgresError: gone\n" in text
    assert "marker" not in text
    assert text.count("ZeroDivisionError: ours") == 1


def test_in_json_each_name_is_a_field() -> None:
    given = ({"queue": "a", "lease": "l-1", "error": ValueError("no")},)
    record = logging.LogRecord("fairlane", logging.WARNING, "", 0, "lost %(lease)s of %(queue)r", given, None)
    line = json.loads(_JsonFormatter(3).format(record))
    assert line["message"] == "lost l-1 of 'a'"
    assert {"queue": "a", "lease": "l-1", "error": "no", "worker": 3}.items() <= line.items()


def test_lines_have_their_fields_by_name_in_words_of_the_glossary() -> None:
    found, wrong = set(), []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(ast.Name("log"), verb), args=[text, *more]) if verb in VERBS:
                    placed = isinstance(text, ast.Constant) and re.search(r"%[^(%]", str(text.value))
                    if placed or len(more) > 1 or any(isinstance(one, ast.Starred) for one in more):
                        wrong.append(f"{file.relative_to(SOURCE)}:{node.lineno}")
                    found |= set(re.findall(r"%\((\w+)\)", getattr(text, "value", "")))
    assert not wrong, "a line is a text, and its fields by name"
    assert found <= NAMES


def test_a_line_tells_the_trace_that_it_was_written_in(
    out: io.StringIO, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("fairlane.x")
    log.info("before")
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    monkeypatch.setattr(tracing, "current_context", lambda: {"traceparent": parent})
    log.info("within")
    [before, within] = out.getvalue().splitlines()
    assert before.endswith("before")
    assert within.endswith("within (trace 0af7651916cd43dd8448eb211c80319c)")
    record = logging.LogRecord("fairlane", logging.INFO, "", 0, "x", None, None)
    record.trace_id = "0af7"
    assert json.loads(_JsonFormatter(None).format(record))["trace_id"] == "0af7"
