"""Private files, which hold messages or keys: for the user that the broker runs as, and nobody else on the machine."""

from __future__ import annotations

import contextlib
import os


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
