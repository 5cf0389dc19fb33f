"""Dead letters: list, replay, purge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.http.message import Request, Response, json_response
from fairlane.http.query import moment, read
from fairlane.http.router import Route
from fairlane.http.routes.queues import existing
from fairlane.http.wire import decode
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
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import Queue
from fairlane.store.values import DeadFilter

if TYPE_CHECKING:
    from fairlane.http.app import App


async def list_letters(app: App, request: Request) -> Response:
    """Of a queue, or of all: those that are there are merged by the time of failure."""
    query = read(request.query, DlqQuery)
    store = app.engine.store
    where = DeadFilter(
        group=query.consumer_group,
        failed_from=moment("from", query.since) if query.since else None,
        failed_until=moment("to", query.until) + 1 if query.until else None,
    )
    found: list[DeadLetter] = []
    total = 0
    for queue in await _queues(app, query.queue):
        narrowed = await _narrowed(app, queue, where, query.partition)
        if narrowed is not None:
            total += await store.dead_letters.count(queue.id, narrowed)
            found += await store.dead_letters.list(queue.id, narrowed, limit=query.limit + query.offset)
    found.sort(key=lambda letter: (letter.failed_at, letter.id), reverse=True)
    page = found[query.offset : query.offset + query.limit]
    answer = DeadLetterList(
        messages=[letter_out(letter) for letter in page],
        total=total,
        pagination=Pagination(limit=query.limit, offset=query.offset),
    )
    return json_response(answer)


async def _queues(app: App, name: str | None) -> list[Queue]:
    """The queue named, if it is there, or all: to a reader, the dead letters of no queue are none."""
    if name is None:
        return await app.engine.store.queues.list(app.tenant)
    queue = await app.engine.store.queues.get(app.tenant, name)
    return [queue] if queue else []


async def _narrowed(app: App, queue: Queue, where: DeadFilter, partition: str | None) -> DeadFilter | None:
    """The filter for one partition of the queue; None if the queue has no such partition."""
    if partition is None:
        return where
    found = await app.engine.store.queues.named(queue.id, partition)
    return msgspec.structs.replace(where, partition=found.id) if found else None


async def replay(app: App, request: Request) -> Response:
    body = decode(request.body, ReplayBody)
    queue = await existing(app, body.queue)
    where = DeadFilter(group=body.consumer_group, ids=body.ids)
    replayed: list[tuple[str, str]] = []
    # All that match, in steps that each are a transaction: a replay of many does not hold the store up.
    while some := await app.broker.replay(queue.name, where):
        replayed += some
    return json_response(ReplayedLetters(replayed=[ReplayedLetter(id=id, message_id=new) for id, new in replayed]))


async def purge(app: App, request: Request) -> Response:
    query = read(request.query, PurgeQuery)
    queue = await existing(app, query.queue)
    ids = query.ids.split(",") if query.ids is not None else None
    where = DeadFilter(group=query.consumer_group, ids=ids)
    purged = 0
    while some := await app.broker.purge(queue.name, where):
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
