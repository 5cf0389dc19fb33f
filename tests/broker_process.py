"""A broker in a process of its own, as users run it: `fairlane serve`."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

FAIRLANE = str(Path(sys.executable).with_name("fairlane"))
STOP_SECONDS_MAX = 60.0
"""Timeout for the broker to stop. It stops much earlier, except on a busy machine."""
_ADDRESS = re.compile(r" on (https?://\S+:\d+|unix:\S+), store ")


class BrokerProcess:
    """A broker on a free port, which it keeps when it is started again. `log` holds the lines it
    has logged. `arguments` are added to `fairlane serve`, and `environment` to the environment of the tests."""

    def __init__(
        self, store: str, *arguments: str, data_dir: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log: list[str] = []
        self.url = ""
        self._environment = environment or {}
        self._arguments = ["--store", store, "--data-dir", str(data_dir), *arguments]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the broker, and return once it listens."""
        port = self.url.rpartition(":")[2] if self.url.startswith("http") else "0"
        self._process = subprocess.Popen(
            [FAIRLANE, "serve", "--port", port, *self._arguments],
            stderr=subprocess.PIPE,
            text=True,
            # Settings of a broker in the environment of the tests are not meant for this one.
            env={name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
            | dict(self._environment),
        )
        self.url = self._address()
        self._reader = threading.Thread(target=self._read, name="broker-log", daemon=True)
        self._reader.start()

    def stop(self) -> int:
        """Ask the broker to stop and wait for it. Returns its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._ended()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._ended()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _address(self) -> str:
        """Return the address that the broker logs once it listens."""
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if found := _ADDRESS.search(line):
                return found[1]
        raise AssertionError(f"the broker ended with {self._process.wait()}:\n{''.join(self.log)}")

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        self.log.extend(self._process.stderr)

    def _ended(self) -> int:
        assert self._process is not None
        code = self._process.wait(STOP_SECONDS_MAX)
        if self._reader is not None:
            self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code


@contextlib.contextmanager
def broker_process(store: str, *arguments: str) -> Iterator[BrokerProcess]:
    """Yield a running broker. Stops it at the end if it still runs."""
    with tempfile.TemporaryDirectory(prefix="fairlane-data-") as data_dir:
        broker = BrokerProcess(store, *arguments, data_dir=Path(data_dir))
        broker.start()
        try:
            yield broker
        finally:
            if broker.running:
                broker.stop()
