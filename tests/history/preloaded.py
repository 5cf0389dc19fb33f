"""Processes whose clock and disk fail on command, by a library that is preloaded into them."""

from __future__ import annotations

import mmap
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
_LAYOUT = struct.Struct("qq")


def compile_library(directory: Path) -> Path:
    """Compile the library into a directory that every user may read."""
    directory.chmod(0o755)
    library = directory / "faults.so"
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True, timeout=60
    )
    library.chmod(0o755)
    return library


class Faults:
    """The clock and the disk of the processes that run with `environment`."""

    def __init__(self, library: Path, name: str) -> None:
        control = library.with_name(name)
        control.write_bytes(_LAYOUT.pack(0, 0))
        control.chmod(0o644)
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._offset, self._full = 0, False
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "HISTORY_FAULTS": str(control)}

    def step_clock(self, seconds: int) -> None:
        """Set the clock `seconds` ahead of the true time, or behind it if negative."""
        self._offset = seconds
        self._write()

    def fill_disk(self, full: bool) -> None:
        """Refuse writes that would make a file larger, or allow them again."""
        self._full = full
        self._write()

    def heal(self) -> None:
        self._offset, self._full = 0, False
        self._write()

    def _write(self) -> None:
        self._control[:] = _LAYOUT.pack(self._offset, int(self._full))
