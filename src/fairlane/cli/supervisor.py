"""The supervisor of several broker processes on one port: starts them, replaces those that die, and ends when all have.

They accept from one listening socket, which they inherit: what waits there is served by the others when one of them
dies, and no second broker can take the port by accident, as it could with SO_REUSEPORT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

import msgspec

from fairlane.config import Settings
from fairlane.runtime.backoff import backoff

READY = b"ready\n"
KILL_SECONDS = 9.5
_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 10.0
_SETTLED_SECONDS = 30.0
"""A worker that lived this long did not die of how it was started: the next one begins at once."""

log = logging.getLogger("fairlane")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a supervised broker process. `store` is in the settings as the worker is to open it."""

    settings: Settings
    sockets: list[int]
    number: int


class Supervisor:
    def __init__(self, settings: Settings, sockets: Sequence[socket.socket]) -> None:
        self._settings = settings
        self._sockets = [listening.fileno() for listening in sockets]
        self._processes: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._failed = False

    async def run(self, ready: Callable[[], None]) -> int:
        """Serve until SIGTERM or SIGINT; 0 if every worker answered everybody before it ended.

        The first worker is ready before the others begin: it brings the schema up to date for all. A first
        worker that cannot start is not tried again, for its reason will be the settings or the store."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if not await self._start(0):
            return 0 if self._stopping.is_set() else await self._processes[0].wait() or 1
        others = range(1, self._settings.workers)
        await asyncio.gather(*(self._start(number) for number in others))
        if not self._stopping.is_set():
            ready()
        keepers = [asyncio.create_task(self._keep(number)) for number in (0, *others)]
        await self._stopping.wait()
        _, left = await asyncio.wait(keepers, timeout=KILL_SECONDS)
        for process in self._processes.values():
            if left and process.returncode is None:
                self._failed = True
                process.kill()
        await asyncio.wait(keepers)
        return 1 if self._failed else 0

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._processes.values():
            _terminate(process)

    async def _keep(self, number: int) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            code = await self._processes[number].wait()
            if self._stopping.is_set():
                self._failed = self._failed or code not in (0, -signal.SIGTERM, -signal.SIGINT)
                return
            failures = 1 if time.monotonic() - began > _SETTLED_SECONDS else failures + 1
            pause = backoff(failures, base=_PAUSE_SECONDS, most=_PAUSE_SECONDS_MAX)
            log.error("broker process %d exited with code %d; restarting it in %.1f seconds", number, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return
            await self._start(number)

    async def _start(self, number: int) -> bool:
        """Start a worker and wait until it listens; whether it does."""
        process = self._processes[number] = await asyncio.create_subprocess_exec(
            # -P: the directory we run in is not a place to import from.
            *(sys.executable, "-P", "-m", "fairlane.cli.broker_process"),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=self._sockets,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        task = Task(settings=self._settings, sockets=self._sockets, number=number)
        process.stdin.write(msgspec.json.encode(task) + b"\n")
        if self._stopping.is_set():
            _terminate(process)
        return await process.stdout.readline() == READY


def _terminate(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
