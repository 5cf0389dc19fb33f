"""A process with a share of the clients of a run: `python -m fairlane.verify.client_process`.

Its first line of input is the task. The lines `drain` and `stop` follow. At the end of the input it exits. Each second
it prints how many messages it has pushed and received.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

import msgspec

from fairlane.verify.feature_recording import FeatureRecordingClient
from fairlane.verify.feature_traffic import FeatureTraffic
from fairlane.verify.history import HistoryWriter
from fairlane.verify.requester import Requester
from fairlane.verify.traffic import Traffic

PROGRESS_SECONDS = 1.0


class ClientTask(msgspec.Struct):
    """The task of a client process."""

    urls: list[str]
    prefix: str
    seed: int
    number: int
    processes: int
    run: str
    """Part of every message id, different for each process that is started."""
    history: str
    store: str = ""
    """URL of the PostgreSQL database in which programs enqueue messages. Empty if there is none."""


class ClientCounts(msgspec.Struct):
    """Messages that a process has pushed and received so far."""

    pushed: int
    delivered: int


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task = msgspec.json.decode(await reader.readline(), type=ClientTask)
    requester, writer = Requester(task.urls), HistoryWriter(Path(task.history))
    client = FeatureRecordingClient(requester, writer, Random(f"{task.seed} {task.run}"), task.prefix)
    features = FeatureTraffic(client, task.run, task.store)
    traffic = Traffic(client, task.number, task.processes, task.run, features)
    traffic.start()
    progress = asyncio.create_task(_report(client))
    while word := (await reader.readline()).strip():
        if word == b"drain":
            traffic.draining = True
        else:
            await traffic.stop()
            break
    progress.cancel()
    await features.close()
    _print(client)
    requester.close()
    writer.close()


async def _report(client: FeatureRecordingClient) -> None:
    while True:
        _print(client)
        await asyncio.sleep(PROGRESS_SECONDS)


def _print(client: FeatureRecordingClient) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(ClientCounts(client.pushed, client.delivered)) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
