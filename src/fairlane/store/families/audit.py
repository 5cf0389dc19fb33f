"""The audit log: entries are added at its end, each with a hash over itself and the one before, and never changed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.model.audit import AuditAction, AuditEntry
from fairlane.store.families.query import DatabaseTransaction, Family, struct


class Audit(Family):
    async def add(self, entries: Sequence[AuditEntry]) -> list[int]:
        """Add them in their order, with the store's time, all or none; their numbers. An action has one end: the same
        again changes nothing."""

        async def work(transaction: DatabaseTransaction) -> list[int]:
            await transaction.lock("audit.lock")
            [[number, hash, at]] = await transaction.run("audit.head")
            numbers = []
            for entry in entries:
                if entry.began is not None and (known := await transaction.run("audit.end", began=entry.began)):
                    numbers.append(known[0][0])
                    continue
                number += 1
                numbers.append(number)
                entry = msgspec.structs.replace(entry, number=number, at=at).hashed(hash)
                hash = entry.hash
                await transaction.run("audit.add", **msgspec.structs.asdict(entry))
            await transaction.run("audit.set_head", number=number, hash=hash)
            return numbers

        return await self._runner.transact(work)

    async def page(self, tenant: str | None, *, before: int, limit: int) -> list[AuditAction]:
        """Entries below a number, newest first, of one tenant or of all; an action and its end are one."""
        rows = await self._runner.read("audit.page", tenant=tenant, before=before, limit=limit)
        return [struct(AuditAction, row) for row in rows]

    async def after(self, number: int, *, limit: int) -> list[AuditEntry]:
        """Entries above a number, oldest first, of all tenants."""
        return [struct(AuditEntry, row) for row in await self._runner.read("audit.after", number=number, limit=limit)]

    async def head(self) -> tuple[int, bytes]:
        """Number and hash of the last entry, 0 and nothing without one."""
        [[number, hash, _]] = await self._runner.read("audit.head")
        return number, hash

    async def forget(self, *, seconds: int, limit: int) -> int:
        """Delete some of the entries that are older, oldest first, and return how many. The newest of them stays: its
        age proves that those before it were not taken out too early. None goes that comes after a younger one."""
        return len(await self._runner.write("audit.forget", seconds=seconds, limit=limit))
