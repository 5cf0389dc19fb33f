"""The data directory, for what is not the store. One process owns it, and whatever lives in it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from fairlane.errors import InvalidRequest, Unavailable
from fairlane.runtime.lock_file import LockFile


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
