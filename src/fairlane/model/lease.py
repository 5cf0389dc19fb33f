"""Leases: the right to work on a batch of each of some partitions for one group."""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

_LEASE = re.compile(r"([1-9]\d{0,18})\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII)


class LeaseId(NamedTuple):
    """A lease's id: names the group, so that any broker finds the lease among that group's live ones without an index
    of its own."""

    group_id: int
    token: UUID

    def __str__(self) -> str:
        return f"{self.group_id}.{self.token}"

    @classmethod
    def parse(cls, text: object) -> LeaseId | None:
        """None for anything that was never a lease: to the caller it is lost, like any other that ended."""
        match = _LEASE.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) >= 2**63:
            return None
        return cls(int(match[1]), UUID(match[2]))
