"""Tenants: made and deleted by hand, each with its quotas. A change of one is a change of the catalogue (TENANTS)."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name

from fairlane.errors import Conflict
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.tenant import Quotas, Tenant
from fairlane.store.families.port import Family, Transaction, as_json, one, struct, value
from fairlane.store.families.queues import KEYS, SPECS, TENANTS, note_changes


class Tenants(Family):
    async def list(self) -> List[Tenant]:
        """By name."""
        return [struct(Tenant, row) for row in await self._port.read("tenants.list")]

    async def get(self, name: str) -> Tenant | None:
        return one(Tenant, await self._port.read("tenants.get", name=name))

    async def make(self, name: str, quotas: Quotas) -> bool:
        """False and nothing done if it is there."""
        return await self._change("tenants.make", name, quotas)

    async def limit(self, name: str, quotas: Quotas) -> bool:
        """Give it other quotas; False if it is not there."""
        return await self._change("tenants.limit", name, quotas)

    async def _change(self, statement: str, name: str, quotas: Quotas) -> bool:
        async def work(transaction: Transaction) -> bool:
            changed = await transaction.run(statement, name=name, quotas=as_json(quotas))
            await note_changes(transaction, [TENANTS] if changed else [])
            return bool(changed)

        return await self._port.transact(work)

    async def delete(self, name: str) -> bool:
        """Delete a tenant without queues, with all else that it has: specs, schedules, sources, streams, effects,
        operations, workers and keys; False if it is not there. Conflict while it has queues. A tenant that has its name
        later finds nothing of it."""
        if name == DEFAULT_TENANT:
            raise Conflict(f"the tenant {DEFAULT_TENANT!r} is always there")

        async def work(transaction: Transaction) -> bool:
            if not await transaction.run("tenants.lock", name=name):
                return False
            if queues := value(await transaction.run("tenants.queues", name=name)):
                raise Conflict(f"tenant {name!r:.80} still has {queues} queues; delete them first")
            for shard in self._port.shards:
                await transaction.run("tenants.forget_shard", shard=shard, name=name)
            await transaction.run("tenants.forget", name=name)
            await note_changes(transaction, [TENANTS, SPECS, KEYS])
            return True

        return await self._port.transact(work)

    async def counts(self, name: str) -> tuple[int, int, int, int]:
        """How many queues, partitions, groups and schedules it has."""
        [[queues, groups, schedules]] = await self._port.read("tenants.counts", name=name)
        partitions = [
            value(await self._port.read("tenants.partitions", shard=shard, name=name)) for shard in self._port.shards
        ]
        return queues, sum(partitions), groups, schedules

    async def stored_bytes(self, name: str) -> int:
        """Return the bytes of all messages of the tenant, including scheduled ones."""
        return await self._summed("tenants.bytes", name)

    async def other_bytes(self, name: str) -> int:
        """Return the bytes of everything that the tenant stores except messages.

        Counts effects, traces, results, stream state, records of sources, schedules, worker reports, specs and keys."""
        there = value(await self._port.read("tenants.other_bytes", name=name))
        return int(there) + await self._summed("tenants.other_bytes_shard", name)

    async def _summed(self, statement: str, name: str) -> int:
        found = [value(await self._port.read(statement, shard=shard, name=name)) for shard in self._port.shards]
        return sum(map(int, found))
