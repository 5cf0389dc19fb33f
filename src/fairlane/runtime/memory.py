"""The garbage collector of a process that handles many small values."""

from __future__ import annotations

import gc


def ease_collector() -> None:
    """Look for cycles rarely: a flush makes and drops thousands of values, none of them cyclic, and each pass over them
    costs as much as a tenth of the work. What exists at start is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
