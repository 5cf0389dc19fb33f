"""Processes whose clock and disk fail on command, by a library that is preloaded into them."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

from fairlane.errors import Unavailable

FAULTS_SOURCE = Path(__file__).with_name("preload.c")
RECORDER_SOURCE = Path(__file__).with_name("recorder.c")
_LAYOUT = struct.Struct("qqqq")


def has_compiler() -> bool:
    """Return True if the library can be compiled on this machine."""
    return shutil.which("cc") is not None


def compile_library(directory: Path, source: Path = FAULTS_SOURCE) -> Path:
    """Compile a library into a directory that every user may read. Raises Unavailable if the compiler fails."""
    directory.chmod(0o755)
    library = directory / f"{source.stem}.so"
    command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    if done.returncode:
        raise Unavailable(f"the compiler cannot build {source.name}: {done.stderr[-500:]}")
    library.chmod(0o755)
    return library


class Preload:
    """The clock and the disk of the processes that run with `environment`."""

    def __init__(self, library: Path, name: str) -> None:
        control = library.with_name(name)
        control.write_bytes(_LAYOUT.pack(0, 0, 0, 0))
        control.chmod(0o666)
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.environment = {"LD_PRELOAD": str(library), "VERIFY_FAULTS": str(control)}

    def step_clock(self, seconds: int) -> None:
        """Set the clock `seconds` ahead of the true time, or behind it if negative."""
        self._put(0, seconds)

    def fill_disk(self, full: bool) -> None:
        """Refuse writes that would make a file larger, or allow them again."""
        self._put(1, int(full))

    def kill_at(self, call: int) -> None:
        """Kill the process at its nth write, sync or send from now on. 0 cancels this."""
        self._put(3, 0)
        self._put(2, call)

    def fail_at(self, call: int, failures: int) -> None:
        """Make this many writes or syncs of files fail with EIO, from the nth one on."""
        self._put(3, failures)
        self._put(2, call)

    def heal(self) -> None:
        self._control[:] = _LAYOUT.pack(0, 0, 0, 0)

    def _put(self, field: int, value: int) -> None:
        self._control[field * 8 : field * 8 + 8] = struct.pack("q", value)
