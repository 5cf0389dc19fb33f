"""Tenants, which operators create and delete, each with its quotas.

Creating, changing or deleting one changes the catalogue (TENANTS).
"""

from __future__ import annotations

from fairlane.errors import Conflict
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.tenant import Quotas, Tenant
from fairlane.store.families.query import DatabaseTransaction, Family, as_json, one, struct, value
from fairlane.store.families.queues import KEYS, SPECS, TENANTS, note_changes


class Tenants(Family):
    async def all(self) -> list[Tenant]:
        """Return all tenants by name."""
        return [struct(Tenant, row) for row in await self._runner.read("tenants.all")]

    async def get(self, name: str) -> Tenant | None:
        return one(Tenant, await self._runner.read("tenants.get", name=name))

    async def make(self, name: str, quotas: Quotas) -> bool:
        """Create a tenant. Returns False, without changing it, if it exists."""
        return await self._change("tenants.make", name, quotas)

    async def limit(self, name: str, quotas: Quotas) -> bool:
        """Set the quotas of a tenant. Returns False if it does not exist."""
        return await self._change("tenants.limit", name, quotas)

    async def _change(self, statement: str, name: str, quotas: Quotas) -> bool:
        async def work(transaction: DatabaseTransaction) -> bool:
            changed = await transaction.run(statement, name=name, quotas=as_json(quotas))
            await note_changes(transaction, [TENANTS] if changed else [])
            return bool(changed)

        return await self._runner.transact(work)

    async def delete(self, name: str) -> bool:
        """Delete a tenant without queues, and everything else that it has. Returns False if it does not exist.

        That is specs, schedules, sources, streams, effects, operations, workers and keys. Raises Conflict while the
        tenant has queues. A new tenant of the same name starts empty.
        """
        if name == DEFAULT_TENANT:
            raise Conflict(f"the tenant {DEFAULT_TENANT!r} is always there")

        async def work(transaction: DatabaseTransaction) -> bool:
            if not await transaction.run("tenants.lock", name=name):
                return False
            if queues := value(await transaction.run("tenants.queues", name=name)):
                raise Conflict(f"tenant {name!r:.80} still has {queues} queues; delete them first")
            await transaction.run("tenants.forget_messages", name=name)
            await transaction.run("tenants.forget", name=name)
            await note_changes(transaction, [TENANTS, SPECS, KEYS])
            return True

        return await self._runner.transact(work)

    async def counts(self, name: str) -> tuple[int, int, int, int]:
        """Return the numbers of queues, partitions, groups and schedules of the tenant."""
        [[queues, groups, schedules]] = await self._runner.read("tenants.counts", name=name)
        partitions = value(await self._runner.read("tenants.partitions", name=name))
        return queues, partitions, groups, schedules

    async def stored_bytes(self, name: str) -> int:
        """Return the bytes of all messages of the tenant, including scheduled ones."""
        return int(value(await self._runner.read("tenants.bytes", name=name)))

    async def other_bytes(self, name: str) -> int:
        """Return the bytes of everything that the tenant stores except messages.

        Counts effects, traces, results, stream state, records of sources, schedules, worker reports, specs and keys.
        """
        of_messages = value(await self._runner.read("tenants.other_bytes_of_messages", name=name))
        return int(of_messages) + int(value(await self._runner.read("tenants.other_bytes", name=name)))
