"""Supervisors of broker and worker processes: start them, restart those that die, and stop them."""

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

from fairlane.config import Settings, child_environment
from fairlane.runtime.backoff import backoff

READY = b"ready\n"
KILL_SECONDS = 9.5
_BACKOFF_SECONDS = 0.1
_BACKOFF_SECONDS_MAX = 10.0
_SETTLED_SECONDS = 30.0
"""A process that ran this long did not fail at startup, so the backoff starts over."""

log = logging.getLogger("fairlane")


class BrokerTask(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, sockets and number of a supervised broker process."""

    settings: Settings
    sockets: dict[str, list[int]]
    number: int


class Supervisor:
    """Base class. Subclasses start a process and know when it is ready."""

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
        """Wait until the process is ready. Returns False if it failed to start."""
        return True

    async def run(self, ready: Callable[[], None]) -> int:
        """Run the processes until SIGTERM or SIGINT, which they receive too. Returns 0 if all stopped cleanly.

        The first process is ready before the others start, because the first broker migrates the schema. If it cannot
        start, it is not retried: the settings or the store are wrong.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if not await self._start(0):
            return 0 if self._stopping.is_set() else await self._processes[0].wait() or 1
        others = range(1, self._count)
        await asyncio.gather(*(self._start(number) for number in others))
        if not self._stopping.is_set():
            ready()
        loops = [asyncio.create_task(self._restart_loop(number)) for number in (0, *others)]
        await self._stopping.wait()
        _, running = await asyncio.wait(loops, timeout=self.kill_seconds)
        for process in self._processes.values():
            if running and process.returncode is None:
                self._failed = True
                process.kill()
        await asyncio.wait(loops)
        return 1 if self._failed else 0

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._processes.values():
            _terminate(process)

    async def _restart_loop(self, number: int) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            code = await self._processes[number].wait()
            if self._stopping.is_set():
                self._failed = self._failed or code not in (0, -signal.SIGTERM, -signal.SIGINT)
                return
            failures = 1 if time.monotonic() - began > _SETTLED_SECONDS else failures + 1
            pause = backoff(failures, base=_BACKOFF_SECONDS, most=_BACKOFF_SECONDS_MAX)
            log.error(
                "%(kind)s %(number)d exited with code %(code)d; restarting it in %(pause).1f seconds",
                {"kind": self.kind, "number": number, "code": code, "pause": pause},
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return
            await self._start(number)

    async def _start(self, number: int) -> bool:
        """Start a process and wait until it is ready. Returns False if it failed to start."""
        process = self._processes[number] = await self.spawn(number)
        if self._stopping.is_set():
            _terminate(process)
        return await self.is_ready(process)


class BrokerSupervisor(Supervisor):
    """Supervisor of broker processes on one port.

    They inherit one listening socket. If a process dies, the others serve its waiting connections. Unlike with
    SO_REUSEPORT, a second broker cannot open the port by accident.
    """

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
        """Make each process reload the certificates."""
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGHUP)

    async def spawn(self, number: int) -> Process:
        process = await asyncio.create_subprocess_exec(
            # -P: do not import from the current directory.
            *(sys.executable, "-P", "-m", "fairlane.cli.processes.broker_process"),
            stdin=PIPE,
            stdout=PIPE,
            env=child_environment(),
            pass_fds=[one for numbers in self._sockets.values() for one in numbers],
        )
        assert process.stdin is not None
        task = BrokerTask(settings=self._settings, sockets=self._sockets, number=number)
        process.stdin.write(msgspec.json.encode(task) + b"\n")
        return process

    async def is_ready(self, process: Process) -> bool:
        assert process.stdout is not None
        return await process.stdout.readline() == READY


class WorkerSupervisor(Supervisor):
    """Supervisor of worker processes, which run the same command. They stop when their stdin closes."""

    kind = "worker process"

    def __init__(self, count: int, command: Sequence[str], grace_seconds: float) -> None:
        super().__init__(count)
        self.kill_seconds = grace_seconds + KILL_SECONDS
        self._command = command

    async def spawn(self, number: int) -> Process:
        # In its own session, so that Ctrl-C reaches it only through the supervisor.
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, start_new_session=True)
        log.info("worker process %(number)d started, process id %(pid)d", {"number": number, "pid": process.pid})
        return process


def _terminate(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
