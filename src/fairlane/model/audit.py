"""Audit entries, and the chain of hashes that links them."""

from __future__ import annotations

import hashlib

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One action that was done or refused: the caller, the time, the source address and the outcome."""

    number: int = 0
    """Number of the entry, from 1 without gaps, in the order of storing."""
    at: int = 0
    """Time by the store's clock, in microseconds since 1970."""
    tenant: str
    caller: str
    """Name of the caller's credential, never a name from the request itself."""
    action: str
    target: str
    """Queue, app, key or path of the action."""
    outcome: str
    """`done`, `refused` or `failed`. `begun` for an action whose end is in another entry."""
    source: str
    """Address that the request came from."""
    began: int | None = None
    """In the entry of an action's end, the number of the entry of its beginning."""
    hash: bytes = b""
    previous: bytes = b""
    """Hash of the previous entry. It proves the oldest entry after earlier ones were deleted."""

    def hashed(self, before: bytes) -> AuditEntry:
        """Return the entry with its hash, computed over all its fields and the hash of the previous entry."""
        fields = [value for name, value in msgspec.structs.asdict(self).items() if name not in ("hash", "previous")]
        hash = hashlib.sha256(before + msgspec.json.encode(fields)).digest()
        return msgspec.structs.replace(self, hash=hash, previous=before)


class AuditAction(AuditEntry, frozen=True, kw_only=True):
    """An audit entry for lists, with the outcome from the entry of its end, if that exists."""

    end: str | None
    ended_at: int | None
