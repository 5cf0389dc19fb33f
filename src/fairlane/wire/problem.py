"""Problems on the wire: the reason why a request, or one item of it, was refused."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, rename="camel", omit_defaults=True):
    """A problem: a sentence for people, a code for programs, and numbers for some codes."""

    error: str = ""
    code: str | None = None
    queue_depth: int = 0
    capacity: int = 0
    failed_index: int = -1
    retry_after: float | None = None
    path: str = ""
