"""Sources: their cursors, the leases of their readers, and the records known so far.

Only `commit` changes a source, and gives it a new revision. A source and its records are unchanged while the revision
stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fairlane.errors import Conflict, LeaseLost, SealError
from fairlane.model.ids import PartitionId
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.families.query import (
    AppliedBody,
    DatabaseTransaction,
    Family,
    Value,
    as_json,
    no_more,
    one,
    struct,
)
from fairlane.wire.sources import SourceView

_NOWHERE = PartitionId(0, 0)
"""Partition id for sealing records, which belong to no partition."""


class StoredSource(SourceView):
    """A source as stored."""

    id: int


class Copy(NamedTuple):
    """The content of a record as of its last event, and the partition of its events."""

    key: str
    partition: str
    data: bytes


class SourceStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a source from one revision to the next, in stored form."""

    source_id: int
    tenant: str
    name: str
    token: int
    before: str
    revision: str
    cursor: str | None
    sweep: int
    sweeping: bool
    sweep_cursor: str | None
    swept: bool
    """True if a sweep ends with this step."""
    seen: list[tuple[str, str]]
    """Key and hash of every record that was read. They are marked with `sweep`."""
    copies: list[Copy]
    """Contents of records that are new or changed."""
    gone: list[str]
    """Keys of records to delete."""
    records: int
    """Number of known records after this step."""


class Sources(Family):
    async def lease(self, tenant: str, name: str, *, seconds: int) -> StoredSource | None:
        """Lease the source, creating it if it does not exist, with a token greater than every earlier one.

        Returns None while another reader holds the lease.
        """
        return one(StoredSource, await self._runner.write("sources.lease", tenant=tenant, name=name, seconds=seconds))

    async def keep(self, tenant: str, name: str, token: int, *, seconds: int) -> StoredSource | None:
        """Renew the lease for `seconds` from now. Returns None if it ended or was replaced by a newer one."""
        return one(
            StoredSource,
            await self._runner.write("sources.keep", tenant=tenant, name=name, token=token, seconds=seconds),
        )

    async def release(self, tenant: str, name: str, token: int) -> bool:
        """End the lease. Returns False if it had ended."""
        return bool(await self._runner.write("sources.release", tenant=tenant, name=name, token=token))

    async def get(self, tenant: str, name: str) -> StoredSource | None:
        return one(StoredSource, await self._runner.read("sources.get", tenant=tenant, name=name))

    async def all(self, tenant: str) -> list[StoredSource]:
        """Return the tenant's sources by name."""
        return [struct(StoredSource, row) for row in await self._runner.read("sources.all", tenant=tenant)]

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete the source with its records. Returns False if it does not exist."""

        async def work(transaction: DatabaseTransaction) -> bool:
            found = await transaction.run("sources.delete", tenant=tenant, name=name)
            for (id,) in found:
                await transaction.run("sources.delete_records", source_id=id)
                await transaction.run("sources.delete_copies", source_id=id)
            return bool(found)

        return await self._runner.transact(work)

    async def hashes(self, source_id: int, keys: Sequence[str]) -> dict[str, str]:
        """Return the hashes of known records by key."""
        return dict(await self._runner.read("sources.hashes", source_id=source_id, keys=list(keys)))

    async def not_seen_since(self, source_id: int, sweep: int, *, limit: int) -> list[tuple[str, int]]:
        """Return the key and the size of records that were last seen before this sweep."""
        found = await self._runner.read("sources.not_seen_since", source_id=source_id, sweep=sweep, limit=limit)
        return [(key, size) for key, size in found]

    async def copies(self, source_id: int, keys: Sequence[str]) -> dict[str, Copy]:
        """Return the contents of records by key. A content is null if this broker lacks the key that sealed it."""
        found = await self._runner.read("sources.copies", source_id=source_id, keys=list(keys))
        return {key: Copy(key, partition, await self._opened(source_id, key, data)) for key, partition, data in found}

    async def _opened(self, source_id: int, key: str, data: bytes) -> bytes:
        try:
            return await self._runner.codec.open(_NOWHERE, bytes(data), _bound_to(source_id, key))
        except SealError:  # the key may have gone with its queue, and the event is due all the same
            return b"null"

    async def commit(
        self, step: SourceStep, acks: Sequence[LaneAck], slices: Sequence[Slice], *, also: AppliedBody = no_more
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Run `Messages.transact` and a step of the source in the same transaction.

        Raises Conflict if the source has another revision now, and LeaseLost if `token` does not belong to a
        live lease.
        """
        copies: dict[str, Value] = {
            "source_id": step.source_id,
            "keys": [one.key for one in step.copies],
            "partitions": [one.partition for one in step.copies],
            "data": await self._sealed(step, slices),
        }
        values: dict[str, Value] = msgspec.structs.asdict(step)
        values |= {"seen": as_json(dict(step.seen)), "gone": list(step.gone)}

        async def begin(transaction: DatabaseTransaction) -> None:
            if not await transaction.run("sources.step", **values):
                raise _refusal(
                    step, one(StoredSource, await transaction.run("sources.get", tenant=step.tenant, name=step.name))
                )
            await transaction.run("sources.see", **values)
            if step.copies:
                await transaction.run("sources.copy", **copies)
            if step.gone:
                await transaction.run("sources.forget", **values)
                await transaction.run("sources.forget_copies", **values)

        return await self._runner.transact_messages(acks, slices, begin=begin, also=also)

    async def _sealed(self, step: SourceStep, slices: Sequence[Slice]) -> list[bytes]:
        """Return the contents in stored form, sealed if the messages about them are."""
        codec = self._runner.codec
        for part in slices:  # all are of one queue
            if step.copies and await codec.seals(part.queue_id, part.options):
                return [
                    await codec.seal(_NOWHERE, one.data, _bound_to(step.source_id, one.key), queue_id=part.queue_id)
                    for one in step.copies
                ]
            break
        return [one.data for one in step.copies]


def _bound_to(source_id: int, key: str) -> str:
    return f"record {source_id} {key}"


def _refusal(step: SourceStep, source: StoredSource | None) -> Conflict:
    if source is None or source.id != step.source_id or source.revision != step.before:
        return Conflict(f"source {step.name!r:.80} is not at this revision any more")
    return LeaseLost(f"the lease of source {step.name!r:.80} ended")
