"""The process of a broker: its event loop, its limit of open files, and its private files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Self

from fairlane.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop, which saves a fifth of the CPU time. Falls back to asyncio's if uvloop is missing."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as the system allows, and return it.

    The usual soft limit is about a thousand, which a thousand clients exhaust.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems name a hard limit that they do not grant
        return soft
    return hard


def make_private(path: str) -> None:
    """Create a file of mode 0600 if it does not exist. Ignores failures, which the code that opens the file reports."""
    with contextlib.suppress(OSError, ValueError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def warning_of(path: str) -> str | None:
    """Return a warning about a file that other users can read. None if they cannot."""
    with contextlib.suppress(OSError, ValueError):
        if os.stat(path).st_mode & 0o077:
            return f"{path} can be read by other users of this machine; `chmod 600 {path}` closes it to them"
    return None


class LockFile:
    """An exclusive lock on a file.

    Raises BlockingIOError if another process holds it, OSError if the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """Release the lock. The file stays: removing it could let two later openers lock two different files."""
        os.close(self._fd)


class DataDirectory:
    """A data directory, created if it is missing, and locked so that two brokers do not share it by accident."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self._lock: LockFile | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = LockFile(str(self.path / "lock"))
        except BlockingIOError:
            raise Unavailable(
                f"the data directory {self.path} belongs to another broker; give this one its own with --data-dir"
            ) from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidRequest(
                f"the data directory {self.path} cannot be used: {reason}; name another with --data-dir"
            ) from None
        return self

    def __exit__(self, *exc: object) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def cpu_seconds() -> tuple[float, float]:
    """Return (user, system) CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


def resident_bytes() -> int:
    """Return the memory of this process, or its peak where the system does not report the current size."""
    return _memory_bytes(1) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def virtual_bytes() -> int:
    """Return the size of the address space of this process. 0 where the system does not report it."""
    return _memory_bytes(0)


def _memory_bytes(column: int) -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[column]) * resource.getpagesize()
    except OSError:
        return 0


def descriptors() -> tuple[int, int]:
    """Return the number of open file descriptors and their limit. The number is 0 where it is not reported."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")) - 1, limit  # without the one that lists them
    except OSError:
        return 0, limit
