"""The process of a broker: its event loop, how many files it may open, and the files that are its alone."""

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
    """uvloop's, on which a request takes a fifth less of the CPU; asyncio's own where there is no uvloop."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def raise_descriptor_limit() -> int:
    """Take what the system allows: the usual soft limit is a thousand, which a thousand clients use up. The limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems name a hard limit that they do not grant
        return soft
    return hard


def make_private(path: str) -> None:
    """Make a file of mode 0600 if there is none. What cannot be made is left to who opens it to complain about."""
    with contextlib.suppress(OSError, ValueError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def warning_of(path: str) -> str | None:
    """What to say of a file that other users of the machine can read; None if they cannot."""
    with contextlib.suppress(OSError, ValueError):
        if os.stat(path).st_mode & 0o077:
            return f"{path} can be read by other users of this machine; `chmod 600 {path}` closes it to them"
    return None


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


class DataDirectory:
    """A directory for data: made if it is missing, and locked while open, so that two brokers do not use one by
    accident."""

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
    """(user, system) seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


def resident_bytes() -> int:
    """Memory of this process; its highest so far where the system does not tell the present."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
