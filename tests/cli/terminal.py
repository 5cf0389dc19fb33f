"""A command in a pseudo terminal, for tests that press keys and read the screen."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker_process import FAIRLANE

SECONDS_MAX = 30.0


class Terminal:
    """A running command, started by `with Terminal(environment, "top")`. `text` is its output so far."""

    def __init__(self, environment: dict[str, str], *words: str, cwd: Path | None = None) -> None:
        self._master, self._slave = os.openpty()
        self.resize(100, 30)
        self.before = termios.tcgetattr(self._slave)
        self.text = ""
        self._process = subprocess.Popen(
            [FAIRLANE, *words],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=environment,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that it hears of keys and sizes
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)
        os.close(self._slave)

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, condition: Callable[[], Any]) -> None:
        """Read output until the condition holds."""
        give_up_at = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < give_up_at, self.text[-3000:]
            self._read(0.1)

    def end(self) -> int:
        """Read the remaining output. Returns the exit code."""
        self.until(lambda: self._process.poll() is not None)
        self._read(0)
        return self._process.returncode

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def restored(self) -> bool:
        """True if the terminal's input mode is restored."""
        return termios.tcgetattr(self._slave) == self.before

    @property
    def frame(self) -> list[str]:
        """The lines of the last complete screen."""
        whole = [one for one in self.text.split("\x1b[H")[1:] if "\x1b[J" in one]
        return whole[-1].partition("\x1b[J")[0].replace("\x1b[K", "").split("\r\n") if whole else []

    def _read(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            self.text += os.read(self._master, 65536).decode(errors="replace")
            seconds = 0
