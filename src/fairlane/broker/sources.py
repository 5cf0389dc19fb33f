"""Sources: their pollers, and the pages that become messages, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Literal

import msgspec

from fairlane.broker.paging import page_of
from fairlane.broker.resource import Resource
from fairlane.errors import Conflict, InvalidRequest, LeaseLost, NotFound, QueueFull, TransactionRefused
from fairlane.model.limits import LEASE_SECONDS_MAX
from fairlane.model.message import PushItem, check_items, check_payloads
from fairlane.model.names import check_count, check_name
from fairlane.otel.tracing import context_in
from fairlane.store.families.sources import Copy, SourceStep, StoredSource
from fairlane.wire.sources import SourceCommitted, SourceList, SourceListQuery, SourcePage, SourceRecord, SourceView

GONE_MAX = 1000
"""Deleted records that one commit handles."""
GONE_BYTES_MAX = 8 * 1024 * 1024
"""Size of their contents, unless one alone is larger."""

Event = Literal["created", "changed", "deleted"]
_encode = msgspec.json.Encoder().encode


class Sources(Resource):
    """The sources of a tenant."""

    async def lease(self, name: str, *, seconds: int = 60, token: int | None = None) -> SourceView:
        """Take the lease of a source, created if missing, or renew the one with this token.

        Raises LeaseLost if that has ended, Conflict while another poller has one.
        """
        check_name("name", name)
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        if token is not None:
            renewed = await self._store.sources.keep(self._tenant, name, token, seconds=seconds)
            if renewed is None:
                raise LeaseLost(f"the lease of source {name!r:.80} ended")
            return _shown(renewed)
        taken = await self._store.sources.lease(self._tenant, name, seconds=seconds)
        if taken is None:
            raise Conflict(f"source {name!r:.80} is being read by another poller; its lease ends if it dies")
        return _shown(taken)

    async def release(self, name: str, token: int) -> bool:
        return await self._store.sources.release(self._tenant, check_name("name", name), token)

    async def get(self, name: str) -> SourceView:
        return _shown(await self._existing(name))

    async def all(self) -> list[SourceView]:
        """Return all sources, by name."""
        return [_shown(one) for one in await self._store.sources.all(self._tenant)]

    async def page(self, query: SourceListQuery) -> SourceList:
        shown, total = page_of(
            await self.all(),
            query,
            text=lambda one: one.name,
            up={"name": lambda one: one.name},
            down={"records": lambda one: one.records, "committed": lambda one: one.committed_at or 0},
        )
        return SourceList(sources=shown, total=total)

    async def delete(self, name: str) -> bool:
        return await self._store.sources.delete(self._tenant, check_name("name", name))

    async def _existing(self, name: str) -> StoredSource:
        found = await self._store.sources.get(self._tenant, check_name("name", name))
        if found is None:
            raise NotFound(f"there is no source {name!r:.80}")
        return found

    async def commit(self, name: str, page: SourcePage) -> SourceCommitted:
        """Push new, changed and deleted records, store their state, and move the cursor, in one transaction.

        Repeating a commit does nothing. Raises Conflict if the source has changed since the revision `before`.
        """
        source = await self._existing(name)
        if source.revision == page.check().revision:
            return SourceCommitted(revision=page.revision, repeated=True)
        if source.revision != page.before:
            raise Conflict(f"source {name!r:.80} is at another revision; lease it again to continue from there")
        known = await self._store.sources.hashes(source.id, [record.key for record in page.records])
        gone: list[SourceRecord] = []
        more = False
        if page.last:
            read = {record.key for record in page.records}
            # One more, to know if there are more, plus as many as may be among the records of this page.
            limit = GONE_MAX + 1 + len(read)
            unseen = await self._store.sources.not_seen_since(source.id, source.sweep + page.begin, limit=limit)
            left = [(key, size) for key, size in unseen if key not in read]
            keys = _first(left)
            gone, more = await self._deleted_records(source, keys), len(keys) < len(left)
        step, items, done = plan(self._tenant, source, page, known, gone, more=more)
        await asyncio.to_thread(check_payloads, items)  # they may be large, and would block the event loop
        check_items(items)
        if await self._take(step, self._scope.compiled_specs.admit_steps(items)):
            return msgspec.structs.replace(done, repeated=True)
        if items:
            self._engine.announcer.wake_polls()
        return done

    async def _deleted_records(self, source: StoredSource, keys: Sequence[str]) -> list[SourceRecord]:
        copies = await self._store.sources.copies(source.id, keys)
        return [
            SourceRecord(key=key, hash="-", data=msgspec.Raw(copies[key].data), partition=copies[key].partition)
            for key in keys
            if key in copies  # unless another commit was faster, which ends this one
        ]

    async def _take(self, step: SourceStep, items: Sequence[PushItem]) -> bool:
        """Apply the step. Returns True if an earlier attempt of the same commit applied it."""
        self._engine.admission.check_running()
        self._engine.write_router.check(self._tenant, items)
        take = partial(self._store.sources.commit, step)
        try:
            await self._engine.transactor.transact(self._tenant, items, commit=take)
        except TransactionRefused as error:
            if isinstance(error.__cause__, QueueFull):
                raise error.__cause__ from None
            raise
        except LeaseLost:
            raise
        except Conflict:
            # Perhaps our own earlier attempt applied it, and its answer was lost.
            found = await self._store.sources.get(self._tenant, step.name)
            if found is None or found.revision != step.revision:
                raise
            return True
        return False


def _first(sizes: Sequence[tuple[str, int]]) -> list[str]:
    """Return the keys that one commit takes: at least one, and not many nor large ones together."""
    keys: list[str] = []
    total = 0
    for key, size in sizes[:GONE_MAX]:
        total += size
        if keys and total > GONE_BYTES_MAX:
            break
        keys.append(key)
    return keys


def plan(
    tenant: str, source: StoredSource, page: SourcePage, known: dict[str, str], gone: list[SourceRecord], *, more: bool
) -> tuple[SourceStep, list[PushItem], SourceCommitted]:
    """Return the step of a commit, given the known and the deleted records."""
    if page.sweep and not page.begin and not source.sweeping:
        raise InvalidRequest(f"source {source.name!r:.80} has no sweep in progress; set `begin` on its first page")
    records = {record.key: record for record in page.records}
    created = [record for record in records.values() if record.key not in known]
    differing = [record for record in records.values() if known.get(record.key, record.hash) != record.hash]
    changed = [record for record in differing if record.changed_from(known[record.key])]
    items = [_item(source, page, "created", record) for record in created]
    items += [_item(source, page, "changed", record) for record in changed]
    items += [_item(source, page, "deleted", record) for record in gone]
    ends = page.last and not more
    marks = page.sweep or source.sweeping
    step = SourceStep(
        source_id=source.id,
        tenant=tenant,
        name=source.name,
        token=page.token,
        before=page.before,
        revision=page.revision,
        cursor=source.cursor if page.sweep else page.cursor,
        sweep=source.sweep + page.begin,
        sweeping=not ends if page.sweep else source.sweeping,
        sweep_cursor=(None if ends else page.cursor) if page.sweep else source.sweep_cursor,
        swept=ends,
        # For unchanged records only the mark is new, which counts during a sweep.
        seen=[(record.key, record.hash) for record in (records.values() if marks else [*created, *differing])],
        copies=[Copy(record.key, _partition(record), bytes(record.data)) for record in [*created, *changed]],
        gone=[record.key for record in gone],
        records=source.records + len(created) - len(gone),
    )
    done = SourceCommitted(
        revision=page.revision,
        created=len(created),
        changed=len(changed),
        unchanged=len(records) - len(created) - len(changed),
        deleted=len(gone),
        more=more,
    )
    return step, items, done


def _shown(source: StoredSource) -> SourceView:
    return SourceView(**{name: getattr(source, name) for name in SourceView.__struct_fields__})


def _partition(record: SourceRecord) -> str:
    return record.key if record.partition is None else record.partition


def _item(source: StoredSource, page: SourcePage, event: Event, record: SourceRecord) -> PushItem:
    """Return the message for a record, built from its original bytes."""
    head = _encode({"source": source.name, "event": event, "key": record.key})
    return PushItem(
        queue=page.queue,
        payload=b'%b,"record":%b}' % (head[:-1], record.data),
        partition=_partition(record),
        type=f"{page.type}.{event}" if page.type else event,
        headers={"idempotency-key": f"{source.name}:{record.key}:{page.revision}", **context_in(page.trace_context)},
    )
