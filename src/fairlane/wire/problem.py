"""Problems on the wire: why a request, or one item of it, was refused."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, rename="camel", omit_defaults=True):
    """A problem: a sentence for people, a code for programs, and the numbers that some codes have."""

    error: str = ""
    code: str | None = None
    queue_depth: int = 0
    capacity: int = 0
    failed_index: int = -1
    retry_after: float | None = None
    path: str = ""
