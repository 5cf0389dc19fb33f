"""Audit entries, and the chain of hashes that joins them."""

from __future__ import annotations

import hashlib

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done or refused: by whom, when, from where, and what came of it."""

    number: int = 0
    """From 1 without gaps, by the order in which they were stored."""
    at: int = 0
    """Microseconds since 1970, by the store's clock."""
    tenant: str
    caller: str
    """By the credential, never by what a request says of itself."""
    action: str
    target: str
    """The queue, app, key or path that it was about."""
    outcome: str
    """`done`, `refused` or `failed`; `begun` of an action that another entry tells the end of."""
    source: str
    """The address that it came from."""
    began: int | None = None
    """Of the end of an action: the number of the entry that it began with."""
    hash: bytes = b""
    previous: bytes = b""
    """Hash of the entry before it, which proves the oldest entry when those before it were deleted."""

    def hashed(self, before: bytes) -> AuditEntry:
        """The entry with its hash: over all its fields, and the hash of the one before it."""
        fields = [value for name, value in msgspec.structs.asdict(self).items() if name not in ("hash", "previous")]
        hash = hashlib.sha256(before + msgspec.json.encode(fields)).digest()
        return msgspec.structs.replace(self, hash=hash, previous=before)


class AuditAction(AuditEntry, frozen=True, kw_only=True):
    """An audit entry as it is listed, with what the entry of its end says, if there is one."""

    end: str | None
    ended_at: int | None
