"""Retention logs what it deleted, but not after every pass."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlane.broker import retention
from fairlane.broker.broker import Broker
from fairlane.testing import FrozenClock


async def test_what_was_deleted_is_logged_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, retention.__name__)
    clock = FrozenClock(datetime(2020, 1, 31, 12, tzinfo=UTC))
    async with Broker.open(tmp_path / "queue.db", clock=clock, retention_interval=0) as broker:
        await broker.queues.configure("orders", retention_enabled=True, retention_seconds=60)

        async def run(messages: int) -> None:
            for n in range(messages):
                await broker.push("orders", n)
            clock.advance(120)
            await broker.retention.run()

        for messages in (1, 2, 3):
            await run(messages)
        lines = [record.getMessage() for record in caplog.records]
        assert lines == ["retention deleted 1 messages, 1 of them unread"]
        assert broker.process.telemetry.deleted == 6
        monkeypatch.setattr(retention, "_LOG_SECONDS", 0.0)
        await run(4)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[1:] == ["retention deleted 9 messages, 9 of them unread"]
