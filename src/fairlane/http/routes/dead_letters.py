"""Dead letters: list, replay, purge."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from fairlane.http.decode import decode, read
from fairlane.http.query import moment, name_or_none
from fairlane.http.router import Route
from fairlane.http.routes.queues import existing
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_dead_letters import (
    DeadLetterList,
    DlqQuery,
    Pagination,
    PurgedLetters,
    PurgeQuery,
    ReplayBody,
    ReplayedLetter,
    ReplayedLetters,
    letter_out,
)
from fairlane.model.limits import MESSAGE_BYTES_MAX, POP_BYTES_MAX
from fairlane.model.names import check_name
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import Queue
from fairlane.store.contract.values import DeadFilter

if TYPE_CHECKING:
    from fairlane.http.app import App

_AT_ONCE = 20


async def list_letters(app: App, request: Request) -> Response:
    """Of a queue, or of all: those that are there are merged by the time of failure."""
    query = read(request.query, DlqQuery)
    store = app.broker.store
    name_or_none("partition", query.partition)
    where = _where(query)
    lists = []
    total = 0
    for queue in await _queues(app, name_or_none("queue", query.queue)):
        narrowed = await _narrowed(app, queue, where, query.partition)
        if narrowed is not None and (count := await store.dead_letters.count(queue.id, narrowed)):
            total += count
            lists.append(_Letters(app, queue, narrowed))
    page = await _page(lists, query.offset, query.limit)
    answer = DeadLetterList(
        messages=[letter_out(letter) for letter in page],
        total=total,
        pagination=Pagination(limit=query.limit, offset=query.offset),
    )
    return json_response(answer)


class _Letters:
    """The dead letters of one queue, latest failure first, read a few at a time: each holds a whole message."""

    def __init__(self, app: App, queue: Queue, where: DeadFilter) -> None:
        self._letters = app.broker.store.dead_letters
        self._queue = queue
        self._where = where
        self._page: deque[DeadLetter] = deque()
        self._before: tuple[int, str] | None = None

    async def first(self) -> DeadLetter | None:
        if not self._page:
            page = await self._letters.list(self._queue.id, self._where, limit=_AT_ONCE, before=self._before)
            self._page.extend(page)
            if page:
                self._before = (page[-1].failed_at, page[-1].id)
        return self._page[0] if self._page else None

    def drop(self) -> None:
        self._page.popleft()


async def _page(lists: list[_Letters], offset: int, limit: int) -> list[DeadLetter]:
    """Merged; a page ends early when its messages become too large for one answer."""
    found: list[DeadLetter] = []
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
    return found


async def _queues(app: App, name: str | None) -> list[Queue]:
    """The queue named, if it is there, or all: to a reader, the dead letters of no queue are none."""
    if name is None:
        return await app.broker.store.queues.list(app.tenant)
    queue = await app.broker.store.queues.get(app.tenant, name)
    return [queue] if queue else []


async def _narrowed(app: App, queue: Queue, where: DeadFilter, partition: str | None) -> DeadFilter | None:
    """The filter for one partition of the queue; None if the queue has no such partition."""
    if partition is None:
        return where
    found = await app.broker.store.queues.named(queue.id, partition)
    return msgspec.structs.replace(where, partition=found.id) if found else None


async def replay(app: App, request: Request) -> Response:
    body = decode(request.body, ReplayBody)
    queue = await existing(app, body.queue)
    where = await _chosen(app, queue, body, body.ids)
    replayed: list[tuple[str, str]] = []
    # All that match, in steps that each are a transaction: a replay of many does not hold the store up.
    while where is not None and (some := await app.broker.dead_letters.replay(queue.name, where)):
        replayed += some
    return json_response(ReplayedLetters(replayed=[ReplayedLetter(id=id, message_id=new) for id, new in replayed]))


def _where(query: DlqQuery | ReplayBody | PurgeQuery) -> DeadFilter:
    """All but the partition, which is known by its name here."""
    where = DeadFilter(
        group=name_or_none("consumerGroup", query.consumer_group),
        failed_from=moment("from", query.since) if query.since else None,
        failed_until=moment("to", query.until) + 1 if query.until else None,
        error=query.error or None,
    )
    return where.check()


async def _chosen(app: App, queue: Queue, query: ReplayBody | PurgeQuery, ids: list[str] | None) -> DeadFilter | None:
    """The filter; None if the queue has no such partition."""
    if ids is not None:
        ids = [check_name("id", id) for id in ids]
    partition = name_or_none("partition", query.partition)
    return await _narrowed(app, queue, msgspec.structs.replace(_where(query), ids=ids), partition)


async def purge(app: App, request: Request) -> Response:
    query = read(request.query, PurgeQuery)
    queue = await existing(app, query.queue)
    where = await _chosen(app, queue, query, query.ids.split(",") if query.ids is not None else None)
    purged = 0
    while where is not None and (some := await app.broker.dead_letters.purge(queue.name, where)):
        purged += some
    return json_response(PurgedLetters(purged=purged))


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/dlq",
        endpoint=list_letters,
        summary="Dead letters, latest failure first.",
        tag="dead letters",
        query=DlqQuery,
        answer=DeadLetterList,
    ),
    Route(
        method="POST",
        path="/api/v1/dlq/replay",
        endpoint=replay,
        summary="Push dead letters again, all or those named; each is replayed once.",
        tag="dead letters",
        body=ReplayBody,
        body_bytes_max=2 * MESSAGE_BYTES_MAX,
        answer=ReplayedLetters,
        statuses=(200, 404, 429),
    ),
    Route(
        method="DELETE",
        path="/api/v1/dlq",
        endpoint=purge,
        summary="Delete dead letters for good, all or those named.",
        tag="dead letters",
        query=PurgeQuery,
        answer=PurgedLetters,
        statuses=(200, 404),
    ),
]
