"""The libraries that are preloaded into the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane.verify.disk import RecordedDisk
from fairlane.verify.preload import RECORDER_SOURCE, Preload, compile_library, has_compiler


@dataclass(frozen=True)
class PreloadedLibraries:
    """The libraries in one process and its children: one injects failures, the other records the disk."""

    preload: Preload
    disk: RecordedDisk

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with which the process runs."""
        both = self.preload.environment | self.disk.environment
        # The failing calls come first, so that the recorder sees only those that are made.
        return both | {"LD_PRELOAD": f"{self.preload.environment['LD_PRELOAD']} {self.disk.environment['LD_PRELOAD']}"}


@dataclass(frozen=True)
class CompiledLibraries:
    """The compiled libraries."""

    faults: Path
    recorder: Path

    def load(self, name: str, beginnings: Sequence[Path]) -> PreloadedLibraries:
        """Return the libraries for one process, which writes files whose paths begin with `beginnings`."""
        return PreloadedLibraries(
            Preload(self.faults, f"{name}.faults"), RecordedDisk(self.recorder, f"{name}.record", beginnings)
        )


def compile_libraries(directory: Path) -> CompiledLibraries | None:
    """Compile the libraries into a directory. Returns None without a compiler."""
    if not has_compiler():
        return None
    return CompiledLibraries(compile_library(directory), compile_library(directory, RECORDER_SOURCE))
