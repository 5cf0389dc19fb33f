"""`fairlane backup` and `fairlane restore`: complete, never half done, and never over something else by accident."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import Broker, Client
from tests.broker_process import FAIRLANE, BrokerProcess
from tests.until import until

STEPS = ["make_store", "put_entries", "rename_replaced", "rename"]


async def command(*words: str, code: int = 0) -> str:
    """Run a command and return its output of both kinds."""
    run = [FAIRLANE, *words]
    done = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def place(tmp_path: Path, name: str) -> list[str]:
    return ["--store", f"{tmp_path}/{name}.db", "--data-dir", f"{tmp_path}/{name}-data"]


@contextlib.asynccontextmanager
async def running(tmp_path: Path, name: str) -> AsyncIterator[BrokerProcess]:
    """Run a broker at a place."""
    broker = BrokerProcess(f"sqlite:///{tmp_path}/{name}.db", data_dir=tmp_path / f"{name}-data")
    await asyncio.to_thread(broker.start)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.stop)


async def read_all(store: str, journal: Path) -> list[Any]:
    """Open a store with its journal and read everything that is in both, in order."""
    async with Broker.open(store, journal=str(journal)) as broker:
        await broker.pauses.pause_pushes(False)
        await broker.push("orders", "last", partition="p")
        seen: list[Any] = []
        while not seen or seen[-1] != "last":
            batch = await broker.pop("orders", batch=1000, wait=30)
            seen += [message.data for message in batch]
            await broker.ack(batch)
    return seen[:-1]


async def test_a_backup_has_every_message_and_every_journal_entry_that_was_accepted(tmp_path: Path) -> None:
    async with running(tmp_path, "here") as broker, Client(broker.url) as client:
        for number in range(20):
            await client.push("orders", number, partition="p")
        batch = await client.pop("orders", batch=5)
        await client.ack(batch)
        await client.pauses.pause_pushes(True)
        for number in range(20, 30):
            await client.push("orders", number, partition="p")
        text = await command("backup", f"{tmp_path}/moved.db", *place(tmp_path, "here"))
        assert "20 messages" in text
        assert "10 journal entries" in text
        await client.push("orders", "later", partition="p")
    await command("restore", f"{tmp_path}/moved.db", *place(tmp_path, "there"))
    assert await read_all(f"sqlite:///{tmp_path}/there.db", tmp_path / "there-data/journal") == [*range(5, 30)]


async def test_a_backup_under_load_has_what_was_answered_before_it_began(tmp_path: Path) -> None:
    async with running(tmp_path, "here") as broker, Client(broker.url) as client:
        answered: list[int] = []

        async def produce() -> None:
            for number in range(10**9):
                await client.push("orders", number, partition="p")
                answered.append(number)

        producer = asyncio.create_task(produce())
        await until(lambda: len(answered) > 50)
        before = len(answered)
        await command("backup", f"{tmp_path}/moved.db", *place(tmp_path, "here"))
        await until(lambda: len(answered) > before, seconds=60)
        producer.cancel()
        await asyncio.wait([producer])
    await command("restore", f"{tmp_path}/moved.db", *place(tmp_path, "there"))
    seen = await read_all(f"sqlite:///{tmp_path}/there.db", tmp_path / "there-data/journal")
    assert len(seen) >= before
    assert seen == [*range(len(seen))], "in order, without gaps, and once"


def damage(file: Path, offset: float) -> None:
    """Overwrite parts of a fifth of a file."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        for at in range(int(size * offset), int(size * (offset + 0.2)), 64):
            opened.seek(at)
            opened.write(b"\xff" * 32)


def content(file: Path) -> bytes:
    return file.read_bytes()


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
async def moved(tmp_path: Path) -> Path:
    """Return a backup of a store with one message, and of a journal with one more."""
    async with running(tmp_path, "here") as broker, Client(broker.url) as client:
        await client.push("orders", 0, partition="p")
        await client.pauses.pause_pushes(True)
        await client.push("orders", 1, partition="p")
        await command("backup", f"{tmp_path}/moved.db", *place(tmp_path, "here"))
    return tmp_path / "moved.db"


@pytest.mark.parametrize("step", STEPS)
async def test_a_restore_that_is_killed_at_any_step_can_be_repeated(step: str, moved: Path, tmp_path: Path) -> None:
    store = f"{tmp_path}/there.db"
    async with Broker.open(f"sqlite:///{store}", journal=f"{tmp_path}/there-data/journal") as broker:
        await broker.push("other", 1)
    dying = (
        "import os, sys; from pathlib import Path; from fairlane.store import backup\n"
        "place = {'rename': backup.os, 'put_entries': backup}.get(sys.argv[1], backup.database)\n"
        "setattr(place, sys.argv[1], lambda *_: os._exit(9))\n"
        "backup.restore(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), overwrite=True)"
    )
    line = [sys.executable, "-c", dying, step, str(moved), store, f"{tmp_path}/there-data"]
    assert (await asyncio.to_thread(subprocess.run, line)).returncode == 9
    await command("restore", str(moved), *place(tmp_path, "there"), "--overwrite")
    assert await read_all(f"sqlite:///{store}", tmp_path / "there-data/journal") == [0, 1]
    async with Broker.open(f"sqlite:///{store}.replaced-1") as broker:
        assert len(await broker.pop("other")) == 1, "the store that was there is kept"


async def test_a_restored_journal_goes_before_what_was_accepted_later(moved: Path, tmp_path: Path) -> None:
    async with running(tmp_path, "there") as broker, Client(broker.url) as client:
        await client.pauses.pause_pushes(True)
        await client.push("orders", 2, partition="p")
    await command("restore", str(moved), *place(tmp_path, "there"), "--overwrite")
    assert await read_all(f"sqlite:///{tmp_path}/there.db", tmp_path / "there-data/journal") == [0, 1, 2]


@pytest.mark.parametrize("offset", [0.2, 0.5, 0.8])
async def test_a_damaged_backup_is_refused(offset: float, moved: Path, tmp_path: Path) -> None:
    damage(moved, offset)
    await command("backup", str(moved), "--check", code=2)
    await command("restore", str(moved), *place(tmp_path, "there"), code=2)
    assert "there.db" not in names(tmp_path)


async def test_nothing_is_replaced_without_consent_or_under_a_running_broker(moved: Path, tmp_path: Path) -> None:
    before = content(moved)
    assert "--overwrite" in await command("backup", str(moved), *place(tmp_path, "here"), code=2)
    assert content(moved) == before
    async with running(tmp_path, "here"):
        assert "--overwrite" in await command("restore", str(moved), *place(tmp_path, "here"), code=2)
        text = await command("restore", str(moved), *place(tmp_path, "here"), "--overwrite", code=75)
        assert "stop the broker" in text
    assert not [name for name in names(tmp_path) if name.startswith(".moved")], "no unfinished copy is left"
