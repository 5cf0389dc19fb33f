"""A lock file: one process holds it, and the system lets go of when that process dies, however it dies."""

from __future__ import annotations

import fcntl
import os


class LockFile:
    """A lock on a file, taken at once. BlockingIOError if another process has it, OSError if it cannot be opened."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """The file stays: removing it could let two later openers lock two different files."""
        os.close(self._fd)
