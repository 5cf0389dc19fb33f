"""The audit log, an append-only chain of entries.

Each entry has a hash over its content and the previous entry.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.model.audit import AuditAction, AuditEntry
from fairlane.store.families.query import DatabaseTransaction, Family, struct


class Audit(Family):
    async def add(self, entries: Sequence[AuditEntry]) -> list[int]:
        """Append entries in one transaction, with the store's time, and return their numbers.

        An action ends once. A second entry that ends it is not added, and the number of the
        first is returned.
        """

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

    async def page(
        self, tenant: str | None, *, before: int, limit: int, search: str | None = None
    ) -> list[AuditAction]:
        """Return entries below a number, newest first, of one tenant or of all.

        `search` is a text that their caller, action or target contains. An action and the entry that ends
        it are returned as one.
        """
        rows = await self._runner.read("audit.page", tenant=tenant, before=before, limit=limit, search=search)
        return [struct(AuditAction, row) for row in rows]

    async def after(self, number: int, *, limit: int) -> list[AuditEntry]:
        """Return entries of all tenants above a number, oldest first."""
        return [struct(AuditEntry, row) for row in await self._runner.read("audit.after", number=number, limit=limit)]

    async def head(self) -> tuple[int, bytes]:
        """Return the number and the hash of the last entry. An empty log has number 0 and no hash."""
        [[number, hash, _]] = await self._runner.read("audit.head")
        return number, hash

    async def forget(self, *, seconds: int, limit: int) -> int:
        """Delete up to `limit` entries older than `seconds`, oldest first, and return their number.

        The newest of the expired entries stays. Its age proves that the entries before it had expired. Deletion stops
        at the first entry that has not expired.
        """
        return len(await self._runner.write("audit.forget", seconds=seconds, limit=limit))
