"""The command line: `fairlane ...`.

This module has the exit codes, except 0 for success and 1 for "nothing found".
"""

from __future__ import annotations

REFUSED = 2
FAILED = 70  # EX_SOFTWARE
TRY_AGAIN = 75  # EX_TEMPFAIL: the same command may succeed later
INTERRUPTED = 130
