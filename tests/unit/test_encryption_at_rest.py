"""Nothing that a broker on an encrypted queue writes or logs holds a payload in clear."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fairlane.broker.broker import Broker
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer
from tests.queen_package import INSTALLED

CANARY = "canary-93b1c04e"


async def test_no_file_and_no_log_line_holds_the_canary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url, key = f"sqlite:///{tmp_path}/queue.db", os.urandom(32).hex()
    async with Broker.open(url, encryption_key=key, retention_interval=0.01) as broker:
        await broker.queues.configure("secrets", encryption_enabled=True, retry_limit=0)
        await broker.push("secrets", {"card": CANARY})
        await broker.nack(await broker.pop("secrets"), error="refused")
        assert len(await broker.dead_letters.replay("secrets")) == 1
        [again] = await broker.pop("secrets")
        assert again.data == {"card": CANARY}
        await broker.ack(again, result={"charged": CANARY})
        if INSTALLED:
            from tests.queen.notes import add_note

            data = f'"{CANARY}"'.encode()
            await add_note(broker._engine.store, again.partition_id, again.transaction_id, data)
        assert (await broker.push("secrets", {"card": CANARY}, delay_ms=3_600_000)).status == "scheduled"
        await broker.push("plain", "control")
        assert _found(tmp_path, b"control"), "the search itself works, also in what is not checkpointed yet"
        assert _found(tmp_path, CANARY.encode()) == []
    assert _found(tmp_path, CANARY.encode()) == []
    assert CANARY not in caplog.text
    assert _found(tmp_path, bytes.fromhex(key)) == []


def _found(directory: Path, what: bytes) -> list[str]:
    return [path.name for path in directory.iterdir() if path.is_file() and what in path.read_bytes()]


async def test_a_broker_with_a_key_that_never_saw_its_store_keeps_nothing_in_clear(
    tmp_path: Path, postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """The broker cannot know which queues are encrypted, and a result may reveal as much as a message."""
    journal, key = tmp_path / "journal", os.urandom(32).hex()
    url = await fresh_database(postgres18)
    async with Broker.open(url, encryption_key=key) as broker:
        await broker.queues.configure("secrets", encryption_enabled=True)
        await broker.push("secrets", {"card": "first"})
        [first] = await broker.pop("secrets", lease_seconds=600)
    away = "postgresql://nobody@127.0.0.1:1/none"
    options: dict[str, Any] = {"encryption_key": key, "journal": str(journal), "retention_interval": 0}
    async with Broker.open(away, **options) as broker:
        outcome = await broker.push("secrets", {"card": CANARY})
        assert outcome.durability == "journal"
        [acked] = await broker.ack(first, result={"charged": CANARY})
        assert acked.durability == "journal"
        assert _found(journal, CANARY.encode()) == []
    # What is for one store does not go to another; the files are given to a broker of the same name.
    async with Broker.open(url, **options) as broker:
        async with asyncio.timeout(30):
            while not (batch := await broker.pop("secrets", wait=1)):
                pass
        assert [message.data for message in batch] == [{"card": CANARY}]
    assert _found(journal, CANARY.encode()) == []


async def test_entries_whose_key_is_gone_fail_and_are_not_lost(
    tmp_path: Path, postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    journal: dict[str, Any] = {"journal": str(tmp_path / "journal"), "retention_interval": 0}
    async with Broker.open(
        "postgresql://nobody@127.0.0.1:1/none", encryption_key=os.urandom(32).hex(), **journal
    ) as broker:
        assert (await broker.push("orders", 1)).durability == "journal"
    async with Broker.open(await fresh_database(postgres18), **journal) as broker:
        assert broker._engine.journal is not None
        async with asyncio.timeout(30):
            while not (failed := await broker._engine.journal.page(UUID(int=0), failed=True, limit=10)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert "key" in (failed[0].error or "")
        await broker.push("orders", 2)
        assert [message.data for message in await broker.pop("orders", wait=5)] == [2]
