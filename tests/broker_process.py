"""A broker in a process of its own, as users run it: `fairlane serve`."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

FAIRLANE = Path(sys.executable).with_name("fairlane")
STOP_SECONDS_MAX = 15.0
_ADDRESS = re.compile(r" on (http://\S+:\d+), store ")


class BrokerProcess:
    """A running broker; `url` is where it listens, `log` what it said so far."""

    def __init__(self, store: str, *, port: int = 0) -> None:
        self.log: list[str] = []
        # What the environment of the tests says about brokers is not about this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        self._process = subprocess.Popen(
            [FAIRLANE, "serve", "--store", store, "--port", str(port)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.url = self._address()
        self._reader = threading.Thread(target=self._read, name="broker-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self) -> int:
        """Ask it to end, and wait until it did; its exit code."""
        self._process.terminate()
        return self._ended()

    def kill(self) -> None:
        self._process.kill()
        self._ended()

    def _address(self) -> str:
        """It says where it listens once it does."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if found := _ADDRESS.search(line):
                return found[1]
        raise AssertionError(f"the broker ended with {self._process.wait()}:\n{''.join(self.log)}")

    def _read(self) -> None:
        assert self._process.stderr is not None
        self.log.extend(self._process.stderr)

    def _ended(self) -> int:
        code = self._process.wait(STOP_SECONDS_MAX)
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code


@contextlib.contextmanager
def broker_process(store: str, *, port: int = 0) -> Iterator[BrokerProcess]:
    """A broker on a free port, or on the given one, stopped at the end if it still runs."""
    broker = BrokerProcess(store, port=port)
    try:
        yield broker
    finally:
        with contextlib.suppress(ValueError, ProcessLookupError):
            broker.stop()
