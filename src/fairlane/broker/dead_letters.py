"""Dead letters: list, replay, purge."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from fairlane.broker.resource import Resource
from fairlane.errors import InvalidRequest, NotFound, StoreCorrupt
from fairlane.model.limits import COUNT_MAX, POP_BYTES_MAX
from fairlane.model.message import Message, PushItem
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import check_count, check_name, name_or_none
from fairlane.model.queue import Queue
from fairlane.model.segment import unpack
from fairlane.store.contract.failures import LockedLetter, StoredLetter
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import DeadFilter
from fairlane.wire import dead_letters as wire
from fairlane.wire.base import NULL, Pagination

Where = DeadFilter | wire.DeadLetterChoice
_ANY = DeadFilter()
_AT_ONCE = 20
_STEP = 1000
"""Letters that one transaction replays."""


class DeadLetters(Resource):
    async def page(
        self, queue: str, where: Where = _ANY, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> list[wire.DeadLetter]:
        """Return dead letters, latest failure first. `before` is the time and id of the previous page's last one."""
        check_count("limit", limit, least=1, most=COUNT_MAX)
        found = await self._queue(queue)
        chosen = await self._filter(found, where)
        if chosen is None:
            return []
        page = await self._store.dead_letters.page(found.id, chosen, limit=limit, before=before)
        return [_shown(letter) for letter in page]

    async def get(self, queue: str, id: str) -> wire.DeadLetter:
        """Return one dead letter. Raises NotFound."""
        letter = await self._store.dead_letters.get((await self._queue(queue)).id, check_name("id", id))
        if letter is None:
            raise self.missing(queue, id)
        return _shown(letter, tracebacks=True)

    def missing(self, queue: str, id: str) -> NotFound:
        return NotFound(f"queue {queue!r} has no dead letter {id!r:.80}")

    async def search(self, query: wire.DlqQuery) -> wire.DeadLetterList:
        """Return dead letters of a queue, or of all queues, merged by time of failure, latest first.

        The result is empty for a queue that does not exist.
        """
        lists, total = [], 0
        for queue, where in await self._chosen(query):
            if count := await self._store.dead_letters.count(queue.id, where):
                total += count
                lists.append(_Letters(self._store, queue, where))
        letters = await _merged(lists, query.offset, query.limit, tracebacks=query.tracebacks)
        shown = [_shown(one, tracebacks=query.tracebacks) for one in letters]
        pagination = Pagination(limit=query.limit, offset=query.offset)
        return wire.DeadLetterList(messages=shown, total=total, pagination=pagination)

    async def errors(self, query: wire.DlqErrorsQuery) -> wire.DeadLetterErrors:
        """Count dead letters of a queue, or of all queues, by error, most frequent first."""
        found: list[wire.DeadLetterError] = []
        total, complete = 0, True
        for queue, where in await self._chosen(query):
            errors, whole = await self._store.dead_letters.errors(queue, where, limit=query.limit + 1)
            complete = complete and whole
            total += sum(one.count for one in errors)
            found += errors
        found.sort(key=lambda one: one.count, reverse=True)
        complete = complete and len(found) <= query.limit
        return wire.DeadLetterErrors(errors=found[: query.limit], total=total, complete=complete)

    async def _chosen(self, query: wire.DeadLetterChoice) -> list[tuple[Queue, DeadFilter]]:
        """Return the queues with dead letters, or the named one, each with its filter."""
        name = name_or_none("queue", query.queue)
        there = await self._store.dead_letters.queues(self._tenant, since=query.since)
        queues = [queue for queue in await self._store.queues.all(self._tenant) if queue.id in there] if there else []
        named = [queue for queue in queues if name in (None, queue.name)]
        return [(queue, where) for queue in named if (where := await self._filter(queue, query)) is not None]

    async def count(self, queue: str, where: Where = _ANY) -> int:
        """Return the number of dead letters that match."""
        found = await self._queue(queue)
        chosen = await self._filter(found, where)
        return 0 if chosen is None else await self._store.dead_letters.count(found.id, chosen)

    async def replay(
        self, queue: str, where: Where = _ANY, *, payload: bytes | None = None, limit: int | None = None
    ) -> list[tuple[str, str]]:
        """Push dead letters again, at most `limit`. Returns pairs of dead letter id and new message id.

        A dead letter is replayed only once. Many are replayed in several transactions, so that they do not block the
        store. `payload` replaces the payload of a single letter in `ids`. Raises PayloadInvalid if it does not fit the
        type of the queue.
        """
        found = await self._queue(queue)
        chosen, replayed = await self._filter(found, where), list[tuple[str, str]]()
        if payload is not None:
            if chosen is None or chosen.ids is None or len(chosen.ids) != 1:
                raise InvalidRequest("a new payload needs exactly one dead letter in `ids`")
            item = PushItem(queue=queue, payload=payload)
            item.check()
            self._scope.compiled_specs.admit_steps([item])
        while chosen is not None and (limit is None or len(replayed) < limit):
            step = _STEP if limit is None else min(_STEP, limit - len(replayed))
            some = await self._store.dead_letters.replay(found.id, chosen, payload=payload, limit=step)
            if not some:
                break
            replayed += some
            self._engine.announcer.announce(found.id, len(some))
            self._engine.open_operations.enqueued(0)  # some may have become operations
        return replayed

    async def purge(self, queue: str, where: Where = _ANY) -> int:
        found = await self._queue(queue)
        chosen, purged = await self._filter(found, where), 0
        while chosen is not None and (some := await self._store.dead_letters.purge(found.id, chosen)):
            purged += some
        return purged

    async def _queue(self, name: str) -> Queue:
        return await self._catalogue.existing(self._tenant, name)

    async def _filter(self, queue: Queue, where: Where) -> DeadFilter | None:
        """Return the filter for the store. None if the queue has no such partition."""
        if isinstance(where, DeadFilter):
            return where.check()
        if not isinstance(where, wire.DeadLetterChoice):
            raise InvalidRequest("choose dead letters with a DeadFilter")
        partition, ids = None, getattr(where, "ids", None)
        if where.partition is not None:
            named = await self._store.queues.named(queue.id, check_name("partition", where.partition))
            if named is None:
                return None
            partition = named.id
        return DeadFilter(
            group=name_or_none("consumerGroup", where.consumer_group),
            partition=partition,
            ids=ids.split(",") if isinstance(ids, str) else ids,
            failed_from=where.since,
            failed_until=None if where.until is None else where.until + 1,
            error=where.error or None,
            replayed=where.replayed,
        ).check()


class _Letters:
    """The dead letters of one queue, latest failure first, read in small steps because each holds a whole message."""

    def __init__(self, store: Store, queue: Queue, where: DeadFilter) -> None:
        self._letters = store.dead_letters
        self._queue = queue
        self._where = where
        self._page: deque[StoredLetter] = deque()
        self._before: tuple[int, str] | None = None

    async def first(self) -> StoredLetter | None:
        if not self._page:
            page = await self._letters.page(self._queue.id, self._where, limit=_AT_ONCE, before=self._before)
            self._page.extend(page)
            if page:
                self._before = (page[-1].failed_at, page[-1].id)
        return self._page[0] if self._page else None

    def drop(self) -> None:
        self._page.popleft()


async def _merged(lists: list[_Letters], offset: int, limit: int, *, tracebacks: bool) -> list[StoredLetter]:
    """Merge lists into a page. It ends early if its messages become too large for one answer."""
    found: list[StoredLetter] = []
    size = 0
    while len(found) < limit and size <= POP_BYTES_MAX:
        firsts = [(letter.failed_at, letter.id, each, letter) for each in lists if (letter := await each.first())]
        if not firsts:
            break
        _, _, source, letter = max(firsts, key=lambda entry: entry[:2])
        source.drop()
        if offset > 0:
            offset -= 1
        else:
            found.append(letter)
            size += len(letter.message)
            if tracebacks:
                size += sum(len(one.traceback or "") for one in letter.errors)
    return found


def _shown(letter: StoredLetter, *, tracebacks: bool = False) -> wire.DeadLetter:
    try:
        found = unpack(letter.message, position=letter.position, created_at=letter.message_created_at, locked=True)
    except StoreCorrupt:  # its bytes are corrupt; the letter is shown without its message
        found = Message(id="", transaction_id="", raw=NULL)
    return wire.DeadLetter(
        id=letter.id,
        message_id=found.id,
        transaction_id=found.transaction_id,
        partition_id=str(letter.partition),
        queue=letter.queue,
        partition=letter.partition_name,
        group=letter.group,
        error=letter.error,
        attempts=letter.attempts,
        raw=found.raw,
        locked=letter.locked if isinstance(letter, LockedLetter) else None,
        producer_sub=found.producer_sub,
        trace_id=found.trace_id,
        position=letter.position,
        created_at=Moment(letter.message_created_at),
        first_failed_at=Moment(letter.first_failed_at),
        failed_at=Moment(letter.failed_at),
        errors=letter.errors if tracebacks else [replace(one, traceback=None) for one in letter.errors],
        replayed_at=moment_or_none(letter.replayed_at),
        replayed_as=letter.replayed_as,
    )
