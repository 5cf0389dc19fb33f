"""The command line: `fairlane ...`. Exit codes besides 0 for done and 1 for nothing found."""

from __future__ import annotations

REFUSED = 2
FAILED = 70  # EX_SOFTWARE
TRY_AGAIN = 75  # EX_TEMPFAIL: the same command may succeed later
INTERRUPTED = 130


class Exit(Exception):  # not an error: all was said
    """The end of a command with an exit code, after it said why."""

    def __init__(self, code: int) -> None:
        self.code = code
