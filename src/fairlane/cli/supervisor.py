"""The supervisor of several processes of a kind: starts them, replaces those that die, and ends when all have."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence

import msgspec

from fairlane.config import Settings, handed_on
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
    sockets: dict[str, list[int]]
    number: int


class Supervisor:
    """The base: who inherits from it says how a process is started, and when it is ready."""

    kind = "process"
    kill_seconds = KILL_SECONDS

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._failed = False

    async def spawn(self, number: int) -> Process:
        raise NotImplementedError

    async def is_ready(self, process: Process) -> bool:
        """Wait until it does its work; whether it does."""
        return True

    async def run(self, ready: Callable[[], None]) -> int:
        """Run them until SIGTERM or SIGINT, which is passed on; 0 if every process ended in order.

        The first one is ready before the others begin: of brokers it brings the schema up to date for all. A first one
        that cannot start is not tried again, for its reason will be the settings or the store."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if not await self._start(0):
            return 0 if self._stopping.is_set() else await self._processes[0].wait() or 1
        others = range(1, self._count)
        await asyncio.gather(*(self._start(number) for number in others))
        if not self._stopping.is_set():
            ready()
        keepers = [asyncio.create_task(self._keep(number)) for number in (0, *others)]
        await self._stopping.wait()
        _, left = await asyncio.wait(keepers, timeout=self.kill_seconds)
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
            log.error(
                "%(kind)s %(number)d exited with code %(code)d; restarting it in %(pause).1f seconds",
                {"kind": self.kind, "number": number, "code": code, "pause": pause},
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return
            await self._start(number)

    async def _start(self, number: int) -> bool:
        """Start a process and wait until it is ready; whether it is."""
        process = self._processes[number] = await self.spawn(number)
        if self._stopping.is_set():
            _terminate(process)
        return await self.is_ready(process)


class Brokers(Supervisor):
    """Broker processes on one port. They accept from one listening socket, which they inherit: what waits there is
    served by the others when one of them dies, and no second broker can take the port by accident, as it could with
    SO_REUSEPORT."""

    kind = "broker process"

    def __init__(self, settings: Settings, sockets: Mapping[str, Sequence[socket.socket]]) -> None:
        super().__init__(settings.workers)
        self._settings = settings
        self._sockets = {kind: [one.fileno() for one in opened] for kind, opened in sockets.items()}

    async def run(self, ready: Callable[[], None]) -> int:
        if self._settings.tls_cert is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        return await super().run(ready)

    def _reload(self) -> None:
        """Have each process read the certificates again."""
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGHUP)

    async def spawn(self, number: int) -> Process:
        process = await asyncio.create_subprocess_exec(
            # -P: the directory we run in is not a place to import from.
            *(sys.executable, "-P", "-m", "fairlane.cli.broker_process"),
            stdin=PIPE,
            stdout=PIPE,
            env=handed_on(),
            pass_fds=[one for numbers in self._sockets.values() for one in numbers],
        )
        assert process.stdin is not None
        task = Task(settings=self._settings, sockets=self._sockets, number=number)
        process.stdin.write(msgspec.json.encode(task) + b"\n")
        return process

    async def is_ready(self, process: Process) -> bool:
        assert process.stdout is not None
        return await process.stdout.readline() == READY


class Workers(Supervisor):
    """Worker processes, each the command itself. They end when stdin does: with this process, however that ends."""

    kind = "worker process"

    def __init__(self, count: int, command: Sequence[str], grace_seconds: float) -> None:
        super().__init__(count)
        self.kill_seconds = grace_seconds + KILL_SECONDS
        self._command = command

    async def spawn(self, number: int) -> Process:
        # In a session of its own, so that Ctrl-C reaches it once, from here.
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, start_new_session=True)
        log.info("worker process %(number)d started, process id %(pid)d", {"number": number, "pid": process.pid})
        return process


def _terminate(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
