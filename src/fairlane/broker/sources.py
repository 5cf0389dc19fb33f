"""Sources: who reads them, and what the pages that were read become, each once."""

from __future__ import annotations

import asyncio
from builtins import list as List  # there is a verb of that name
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from fairlane.broker.transact import Step, Transactor
from fairlane.errors import Conflict, InvalidRequest, LeaseLost, NotFound, QueueFull, TransactionRefused
from fairlane.model.limits import LEASE_SECONDS_MAX
from fairlane.model.message import PushItem, check_items, check_payloads
from fairlane.model.names import check_count, check_name
from fairlane.model.source import Commit, Committed, Event, Record, Source, SourceStep
from fairlane.store.contract.store import Store

GONE_MAX = 1000
"""Records that one commit finds gone."""

_encode = msgspec.json.Encoder().encode


class Sources:
    """The sources of a broker: `admit` looks at messages as a push does; `check` refuses those that must wait behind
    others; `pushed` is called when messages were pushed."""

    def __init__(
        self,
        store: Store,
        transactor: Transactor,
        admit: Callable[[str, List[PushItem]], Sequence[PushItem]],
        check: Callable[[str, Sequence[Step]], None],
        pushed: Callable[[], None],
    ) -> None:
        self._store = store
        self._transactor = transactor
        self._admit = admit
        self._check = check
        self._pushed = pushed
        self.events = 0

    async def lease(self, tenant: str, name: str, *, seconds: int, token: int | None = None) -> Source:
        """Take the lease of a source, which is made if it is not there, or keep the one with this token. LeaseLost if
        that ended, Conflict while another has one."""
        check_name("name", name)
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        if token is not None:
            renewed = await self._store.sources.keep(tenant, name, token, seconds=seconds)
            if renewed is None:
                raise LeaseLost(f"the lease of source {name!r:.80} ended")
            return renewed
        taken = await self._store.sources.lease(tenant, name, seconds=seconds)
        if taken is None:
            raise Conflict(f"source {name!r:.80} is being read by another poller; its lease ends if it dies")
        return taken

    async def release(self, tenant: str, name: str, token: int) -> bool:
        return await self._store.sources.release(tenant, check_name("name", name), token)

    async def get(self, tenant: str, name: str) -> Source:
        found = await self._store.sources.get(tenant, check_name("name", name))
        if found is None:
            raise NotFound(f"there is no source {name!r:.80}")
        return found

    async def list(self, tenant: str) -> List[Source]:
        """By name."""
        return await self._store.sources.list(tenant)

    async def delete(self, tenant: str, name: str) -> bool:
        return await self._store.sources.delete(tenant, check_name("name", name))

    async def commit(self, tenant: str, name: str, commit: Commit) -> Committed:
        """Push what is new, changed and gone, remember the records, and move the cursor, in one transaction. The same
        commit again does nothing. Conflict if the source has another revision than the commit follows."""
        source = await self.get(tenant, name)
        if source.revision == commit.check().revision:
            return Committed(revision=commit.revision, repeated=True)
        if source.revision != commit.before:
            raise Conflict(f"source {name!r:.80} is at another revision; lease it again to go on where it stands")
        known = await self._store.sources.known(source.id, [record.key for record in commit.records])
        gone: List[str] = []
        if commit.last:
            read = {record.key for record in commit.records}
            # One more, to know whether there are, and as many as may be among the records of this very page.
            limit = GONE_MAX + 1 + len(read)
            unseen = await self._store.sources.unseen(source.id, source.sweep + commit.begin, limit=limit)
            gone = [key for key in unseen if key not in read]
        step, items, done = plan(source, commit, known, gone[:GONE_MAX], more=len(gone) > GONE_MAX)
        await asyncio.to_thread(check_payloads, items)  # they may be large, and hold up everything else
        check_items(items)
        if await self._take(tenant, step, self._admit(tenant, items)):
            return msgspec.structs.replace(done, repeated=True)
        if items:
            self.events += len(items)
            self._pushed()
        return done

    async def _take(self, tenant: str, step: SourceStep, items: Sequence[PushItem]) -> bool:
        """Whether another try of the same commit took the step."""
        self._check(tenant, items)
        take = partial(self._store.sources.commit, step)
        try:
            await self._transactor.transact(tenant, items, commit=take)
        except TransactionRefused as error:
            if isinstance(error.__cause__, QueueFull):
                raise error.__cause__ from None
            raise
        except LeaseLost:
            raise
        except Conflict:
            # Perhaps a try of our own took it, whose answer never came.
            found = await self._store.sources.get(tenant, step.name)
            if found is None or found.revision != step.revision:
                raise
            return True
        return False


def plan(
    source: Source, commit: Commit, known: dict[str, str], gone: List[str], *, more: bool
) -> tuple[SourceStep, List[PushItem], Committed]:
    """What a commit comes to, where these records are known and those are gone."""
    if commit.sweep and not commit.begin and not source.sweeping:
        raise InvalidRequest(f"source {source.name!r:.80} has no sweep under way; say begin with its first page")
    records = {record.key: record for record in commit.records}
    created = [record for record in records.values() if record.key not in known]
    differing = [record for record in records.values() if known.get(record.key, record.hash) != record.hash]
    changed = [record for record in differing if record.changed_from(known[record.key])]
    items = [_item(source, commit, "created", record) for record in created]
    items += [_item(source, commit, "changed", record) for record in changed]
    items += [_item(source, commit, "deleted", Record(key=key, hash="-", data=b"null")) for key in gone]
    ends = commit.last and not more
    marks = commit.sweep or source.sweeping
    step = SourceStep(
        source_id=source.id,
        tenant=source.tenant,
        name=source.name,
        token=commit.token,
        before=commit.before,
        revision=commit.revision,
        cursor=source.cursor if commit.sweep else commit.cursor,
        sweep=source.sweep + commit.begin,
        sweeping=not ends if commit.sweep else source.sweeping,
        sweep_cursor=(None if ends else commit.cursor) if commit.sweep else source.sweep_cursor,
        swept=ends,
        # Of those that did not change the mark alone is new, which counts while a sweep is under way.
        seen=[(record.key, record.hash) for record in (records.values() if marks else [*created, *differing])],
        gone=gone,
        records=source.records + len(created) - len(gone),
    )
    done = Committed(
        revision=commit.revision,
        created=len(created),
        changed=len(changed),
        unchanged=len(records) - len(created) - len(changed),
        deleted=len(gone),
        more=more,
    )
    return step, items, done


def _item(source: Source, commit: Commit, event: Event, record: Record) -> PushItem:
    """Built from the record's own bytes, which are passed on as they came."""
    head = _encode({"source": source.name, "event": event, "key": record.key})
    return PushItem(
        queue=commit.queue,
        payload=b'%b,"record":%b}' % (head[:-1], record.data),
        partition=record.key if record.partition is None else record.partition,
        type=f"{commit.type}.{event}" if commit.type else event,
        headers={"idempotency-key": f"{source.name}:{record.key}:{commit.revision}"},
    )
