"""Poller processes, killed at every step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

from fairlane import Client
from fairlane.poller import Source, poll
from tests.broker_process import broker_process
from tests.poller.api import Api, Asked
from tests.poller.proxy import Proxy

# Starting processes blocks the loop for a moment.
pytestmark = pytest.mark.may_block_loop

STEPS = [
    "lease after",  # the lease is taken, and its holder does not know
    "api asked",
    "api half",  # of a page that was answered
    "commit before",  # a page was read, and not committed
    "commit after",  # it was committed, and nobody was told
    "sweep commit after",
    "sweep api half",
    "sweep commit before",
]
EVENTS = """
select data ->> '$.event', data ->> '$.key', data -> '$.record', count(*) over (
    partition by data ->> '$.event', data ->> '$.key', data -> '$.record'
)
from messages where queue = 'events' order by partition, position
"""


class Pollers:
    """A poller that reads and one on standby. The one that reaches the next of `steps` is killed there."""

    def __init__(self, api: Api, server: str) -> None:
        self.steps: list[str] = []
        self.killed: list[str] = []
        self.tail = 0
        """Pages behind an id before this one belong to a sweep."""
        self._api = api
        self._server = server
        self._processes: list[Any] = []
        self._stack = contextlib.AsyncExitStack()
        # Children of a process that has imported the poller start at once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([poller.__module__])
        api.meet = self._asked

    async def start(self) -> None:
        number = len(self._processes)

        async def meet(verb: str, when: str) -> None:
            await self._arrive(number, f"{verb} {when}")

        proxy = await self._stack.enter_async_context(Proxy(self._server, meet))
        source = Source(
            name="source",
            url=f"{self._api.url}/id",
            queue="events",
            page_size=10,
            headers={"X-Poller": str(number)},
            every_seconds=0.3,
            sweep_seconds=0.3,
            lease_seconds=1,
            allow_private=True,
        )
        process = self._context.Process(target=poller, args=(source, proxy.url), daemon=True)
        process.start()
        self._processes.append(process)

    async def _asked(self, asked: Asked, what: str) -> None:
        sweep = "sweep " if int(asked.query.get("after", 0)) < self.tail else ""
        await self._arrive(int(asked.headers["x-poller"]), f"{sweep}api {what}")

    async def _arrive(self, number: int, where: str) -> None:
        if not self.steps or self.steps[0] != where:
            return
        self.killed.append(self.steps.pop(0))
        self._kill(self._processes[number])
        await self.start()
        raise ConnectionError("nobody is there to be answered")

    def _kill(self, process: Any) -> None:
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL

    async def close(self) -> None:
        for process in self._processes:
            if process.is_alive():
                self._kill(process)
        await self._stack.aclose()


def poller(source: Source, server: str) -> None:
    """Run a poller, in a child process."""
    asyncio.run(poll(source, server))


async def until_known(client: Client, pollers: Pollers, api: Api, *, sweep: int = 0) -> None:
    """Wait until no step is left, all records are known, and the current sweep has ended."""
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(0.05)
            if pollers.steps:
                continue
            source = await client.sources.get("source")
            if source.records == len(api.records) and source.sweep >= sweep and not (sweep and source.sweeping):
                return


@pytest.mark.timeout(120)
async def test_sql_shows_each_event_once_though_pollers_are_killed_at_every_step(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with broker_process(f"sqlite:///{path}") as broker:
        async with Api(45) as api, Client(broker.url) as client:
            pollers = Pollers(api, broker.url)
            try:
                pollers.steps = [step for step in STEPS if not step.startswith("sweep")]
                api.faults.extend([None, "drop", None, "busy", "repeat", None, "half", "broken"])
                await pollers.start()
                await pollers.start()
                await until_known(client, pollers, api)
                change(api)
                begun = (await client.sources.get("source")).sweep
                pollers.tail = 45
                pollers.steps = [step for step in STEPS if step.startswith("sweep")]
                api.faults.extend([None, "repeat", "busy", "drop"])
                await until_known(client, pollers, api, sweep=begun + 1)
            finally:
                await pollers.close()
        assert pollers.killed == STEPS
        assert broker.stop() == 0
    check(path, api)


def change(api: Api) -> None:
    for key in (4, 17, 31):
        api.records[key] = {"id": key, "text": "second"}
    for key in (1, 9, 10, 44, 45):
        del api.records[key]
    for key in range(60, 75):
        api.records[key] = {"id": key, "text": "late"}


def check(path: Path, api: Api) -> None:
    rows: list[Any] = apsw.Connection(str(path)).execute(EVENTS).fetchall()
    assert [row for row in rows if row[3] != 1] == [], "no event is given twice"
    events: dict[str, list[tuple[str, Any]]] = {}
    for event, key, record, _ in rows:
        events.setdefault(key, []).append((event, json.loads(record)))
    expected: dict[str, list[tuple[str, Any]]] = {}
    for key in [*range(1, 46), *range(60, 75)]:
        told = expected[str(key)] = [("created", {"id": key, "text": "late" if key >= 60 else "first"})]
        if key in (4, 17, 31):
            told.append(("changed", {"id": key, "text": "second"}))
        if key not in api.records:
            told.append(("deleted", told[-1][1]))
    assert events == expected
