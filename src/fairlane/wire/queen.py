"""Foreign things on the wire: what exists for the sake of published clients of Queen alone."""

from __future__ import annotations

from typing import Final

FOREIGN_OPTIONS: Final = frozenset({"maxQueueSize", "description"})
"""Options that published clients send and no queue here has."""
