"""Overlapping reads of the same thing: an older result never replaces a newer one."""

from __future__ import annotations


class ReadOrder:
    """The order in which reads started, and the newest that was loaded."""

    def __init__(self) -> None:
        self._started = self._loaded = 0

    def start(self) -> int:
        """Return the number of a read that starts now."""
        self._started += 1
        return self._started

    def may_load(self, number: int) -> bool:
        """Return True if no later read was loaded yet, and count this one as loaded."""
        if number < self._loaded:
            return False
        self._loaded = number
        return True
