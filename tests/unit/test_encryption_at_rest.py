"""Nothing that a broker on an encrypted queue writes or logs holds a payload in clear."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from fairlane.broker import Broker
from fairlane.model.ids import uuid7
from fairlane.model.trace import Trace

CANARY = "canary-93b1c04e"


async def test_no_file_and_no_log_line_holds_the_canary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url, key = f"sqlite:///{tmp_path}/queue.db", os.urandom(32).hex()
    async with Broker.open(url, encryption_key=key, retention_interval=0.01) as broker:
        await broker.configure("secrets", encryption_enabled=True, retry_limit=0)
        await broker.push("secrets", {"card": CANARY})
        await broker.nack(await broker.pop("secrets"), error="refused")
        assert len(await broker.replay("secrets")) == 1
        [again] = await broker.pop("secrets")
        assert again.json() == {"card": CANARY}
        await broker.ack(again, result={"charged": CANARY})
        data = f'"{CANARY}"'.encode()
        trace = Trace(id=uuid7(), partition=again.partition_id, transaction_id=again.transaction_id, data=data)
        assert await broker.store.traces.add(trace)
        assert (await broker.push("secrets", {"card": CANARY}, delay_ms=3_600_000)).status == "scheduled"
        await broker.push("plain", "control")
        assert _found(tmp_path, b"control"), "the search itself works, also in what is not checkpointed yet"
        assert _found(tmp_path, CANARY.encode()) == []
    assert _found(tmp_path, CANARY.encode()) == []
    assert CANARY not in caplog.text
    assert _found(tmp_path, bytes.fromhex(key)) == []


def _found(directory: Path, what: bytes) -> list[str]:
    return [path.name for path in directory.iterdir() if path.is_file() and what in path.read_bytes()]
