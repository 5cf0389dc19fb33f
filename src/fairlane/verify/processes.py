"""The processes of a run: brokers as users start them, and clients."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from fairlane.errors import Unavailable
from fairlane.verify.client_process import ClientCounts, ClientTask

START_SECONDS_MAX = 300.0
"""Timeout for a broker to listen. It also bounds a run whose broker could not write its log."""
STOP_SECONDS_MAX = 60.0
"""Timeout for a process to stop. It stops much earlier, except on a busy machine."""
CLI = (sys.executable, "-P", "-c", "from fairlane.cli.main import main; main()")
_READY = ", store "
_PARENT_DEATH = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Have Linux end this process when its parent dies, which then cannot clean up."""
    if _libc is not None:
        _libc.prctl(_PARENT_DEATH, int(signal.SIGKILL))


def own_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the settings of other brokers, with these variables added.

    Python may store compiled modules. Otherwise a broker would compile itself at each start, which doubles its time.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    return own | dict(more)


class LocalBroker:
    """A broker on a Unix socket, which it keeps when it is started again. It logs to the file `log`."""

    def __init__(
        self,
        store: str,
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.log = directory.with_suffix(".log")
        self.socket = directory / "broker.sock"
        self._environment = environment or {}
        self._command = [
            *(*CLI, "serve", "--store", store, "--data-dir", str(directory), "--host", "none"),
            *("--socket", str(self.socket), "--insecure-no-auth", *arguments),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start the broker, and return once it says that it listens. Raises Unavailable if it does not."""
        began_at = self.log.stat().st_size if self.log.exists() else 0
        # Not in a thread: the broker would end with the thread that started it.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603
                self._command,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the command, which stops its brokers itself
                preexec_fn=end_with_parent,
                env=own_environment({**self._environment, "FAIRLANE_RETENTION_INTERVAL_SECONDS": "1"}),
            )
        text, give_up_at = "", time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up_at:
            text = self.log.read_bytes()[began_at:].decode(errors="replace")
            if _READY in text:
                return
            if not self.running:
                raise Unavailable(f"the broker ended with {self._process.returncode}:\n{text[-2000:]}")
            await asyncio.sleep(0.02)
        await self.kill()
        raise Unavailable(f"the broker did not say within {START_SECONDS_MAX:.0f} s that it listens:\n{text[-2000:]}")

    async def stop(self) -> int:
        """Ask the broker to stop and wait for it. Returns its exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        return await asyncio.to_thread(self._ended)

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._ended)

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _ended(self) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code


class LocalClients:
    """The client processes of a run. One that is killed is replaced, and its history file stays."""

    def __init__(self, task: ClientTask, directory: Path) -> None:
        self._task = task
        self._directory = directory
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._counts: dict[str, ClientCounts] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._started = 0
        self.draining = False

    @property
    def histories(self) -> list[Path]:
        return sorted(self._directory.glob("client-*.jsonl"))

    @property
    def counts(self) -> ClientCounts:
        """The messages of all processes so far."""
        found = self._counts.values()
        return ClientCounts(sum(one.pushed for one in found), sum(one.delivered for one in found))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    async def start(self) -> None:
        for number in range(self._task.processes):
            await self._start(number)

    async def _start(self, number: int) -> None:
        self._started += 1
        run = f"{self._started}"
        task = msgspec.structs.replace(
            self._task, number=number, run=run, history=str(self._directory / f"client-{run}.jsonl")
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "fairlane.verify.client_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=own_environment({}),
        )
        self._processes[number] = process
        await self._send(process, msgspec.json.encode(task))
        if self.draining:
            await self._send(process, b"drain")
        reader = asyncio.create_task(self._read(process, run))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)

    async def _read(self, process: asyncio.subprocess.Process, run: str) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with contextlib.suppress(msgspec.DecodeError):
                self._counts[run] = msgspec.json.decode(line, type=ClientCounts)

    async def _send(self, process: asyncio.subprocess.Process, line: bytes) -> None:
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(line + b"\n")
            await process.stdin.drain()

    async def send(self, word: str) -> None:
        for process in self._processes.values():
            await self._send(process, word.encode())

    async def start_draining(self) -> None:
        """Stop producing messages, and let the clients finish the rest."""
        self.draining = True
        await self.send("drain")

    async def replace(self, number: int) -> None:
        """Kill a client process and start another one with its share."""
        process = self._processes[number]
        process.kill()
        await process.wait()
        await self._start(number)

    async def stop(self) -> None:
        """Stop the clients after the requests that they have sent. Raises Unavailable if one has failed."""
        await self.send("stop")
        for process in self._processes.values():
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS_MAX)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._readers:
            await asyncio.wait(self._readers)
        failed = [process.returncode for process in self._processes.values() if (process.returncode or 0) > 0]
        if failed:
            raise Unavailable(f"{len(failed)} client processes ended by themselves, so the run proves nothing")

    async def kill(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
