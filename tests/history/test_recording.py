"""The record that a client keeps of its requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random

from fairlane.verify.history import HistoryWriter, LaneName, read_history
from fairlane.verify.recording import RecordingClient
from fairlane.verify.requester import Requester
from tests.until import until


async def test_a_push_of_a_killed_client_may_be_at_any_broker(tmp_path: Path) -> None:
    """Its place among the pushes in the journal of one broker is not known."""
    requester, file = Requester([f"unix:{tmp_path}/nobody"] * 2), tmp_path / "client-1.jsonl"
    writer = HistoryWriter(file)
    client = RecordingClient(requester, writer, Random(1), "x.")
    pushing = asyncio.create_task(client.push(1, LaneName("plain", "p0"), ["a"]))
    await until(lambda: file.stat().st_size)
    pushing.cancel()
    with suppress(asyncio.CancelledError):
        await pushing
    requester.close()
    writer.close()
    [push] = read_history([file]).pushes
    assert (push.fate, push.broker, push.roamed) == ("unknown", 1, True)
