"""The admin API: how queues are, and what becomes of dead letters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairlane.errors import InvalidRequest, NotFound
from fairlane.http.decode import decode, read
from fairlane.http.query import name_or_none
from fairlane.http.router import Route
from fairlane.http.routes.queues import existing
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_admin import (
    AdminDone,
    AdminFilter,
    AdminLetterDetail,
    AdminLetters,
    AdminLettersQuery,
    AdminPurged,
    AdminPurgeQuery,
    AdminQueue,
    AdminQueues,
    AdminReplayed,
    AdminReplayedMany,
    AdminReplayedOne,
    admin_letter,
    admin_letter_detail,
    cursor_of,
    read_cursor,
)
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.moment import MICROS_MAX
from fairlane.model.names import check_name
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import Queue
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.values import DeadFilter

if TYPE_CHECKING:
    from fairlane.http.app import App

_MINUTE = 60_000_000


async def list_queues(app: App, request: Request) -> Response:
    counted = sorted(await app.broker.statistics.queues(), key=lambda entry: entry[0].name)
    groups = await app.broker.store.statistics.groups([queue.id for queue, _ in counted])
    oldest = await app.broker.statistics.oldest(counted, groups)
    rates = _rates(app)
    now = await app.broker.store.now()
    queues = [
        AdminQueue(
            name=queue.name,
            depth=stats.pending,
            in_flight=stats.leased,
            oldest_message_age_seconds=max(0, now - oldest[queue.id]) / 1e6 if queue.id in oldest else None,
            messages_per_minute=round(rates.get(queue.id, 0.0), 1),
            dead_letters=stats.dead,
        )
        for queue, stats in counted
    ]
    return json_response(AdminQueues(queues=queues))


def _rates(app: App) -> dict[int, float]:
    """Messages pushed in the last sixty seconds, by queue: the minute that runs, and of the one before as much as is
    within them."""
    now = wall_clock()
    rates: dict[int, float] = {}
    for minute in app.broker.telemetry.minutes(now - 2 * _MINUTE, now):
        share = 1.0 if now - minute.at < _MINUTE else 1 - (now - minute.at - _MINUTE) / _MINUTE
        for queue_id, counts in minute.queues.items():
            rates[queue_id] = rates.get(queue_id, 0.0) + counts.pushed * max(0.0, share)
    return rates


async def list_letters(app: App, request: Request) -> Response:
    query = read(request.query, AdminLettersQuery)
    before = read_cursor(query.cursor)
    queue = await existing(app, request.params["queue"])
    letters = app.broker.store.dead_letters
    page = await letters.list(queue.id, DeadFilter(), limit=query.limit + 1, before=before)
    more = cursor_of(page[query.limit - 1]) if len(page) > query.limit else None
    return json_response(AdminLetters(dead_letters=[admin_letter(one) for one in page[: query.limit]], next=more))


async def show_letter(app: App, request: Request) -> Response:
    _, letter = await _letter(app, request)
    return json_response(admin_letter_detail(letter))


async def replay_letter(app: App, request: Request) -> Response:
    """Asked again, it answers what the first time made."""
    queue, letter = await _letter(app, request)
    replayed = dict(await app.broker.dead_letters.replay(queue.name, DeadFilter(ids=[letter.id])))
    if letter.id not in replayed:
        _, letter = await _letter(app, request)
    new = replayed.get(letter.id) or letter.replayed_as
    if new is None:
        raise _no_letter(queue, letter.id)
    return json_response(AdminReplayed(ok=True, new_message_id=new))


async def replay_letters(app: App, request: Request) -> Response:
    where = _where(decode(request.body, AdminFilter))
    queue = await existing(app, request.params["queue"])
    replayed: list[AdminReplayedOne] = []
    while some := await app.broker.dead_letters.replay(queue.name, where):
        replayed += [AdminReplayedOne(id=id, new_message_id=new) for id, new in some]
    return json_response(AdminReplayedMany(ok=True, replayed=replayed))


async def delete_letter(app: App, request: Request) -> Response:
    queue, letter = await _letter(app, request)
    if not await app.broker.dead_letters.purge(queue.name, DeadFilter(ids=[letter.id])):
        raise _no_letter(queue, letter.id)
    return json_response(AdminDone(ok=True))


async def purge_letters(app: App, request: Request) -> Response:
    query = read(request.query, AdminPurgeQuery)
    where = _where(
        AdminFilter(consumer_group=query.consumer_group, failed_from=query.failed_from, failed_until=query.failed_until)
    )
    queue = await existing(app, request.params["queue"])
    purged = 0
    while some := await app.broker.dead_letters.purge(queue.name, where):
        purged += some
    return json_response(AdminPurged(ok=True, purged=purged))


async def _letter(app: App, request: Request) -> tuple[Queue, DeadLetter]:
    queue = await existing(app, request.params["queue"])
    id = check_name("id", request.params["id"])
    letter = await app.broker.store.dead_letters.get(queue.id, id)
    if letter is None:
        raise _no_letter(queue, id)
    return queue, letter


def _no_letter(queue: Queue, id: str) -> NotFound:
    return NotFound(f"queue {queue.name!r} has no dead letter {id!r:.80}")


def _where(given: AdminFilter) -> DeadFilter:
    return DeadFilter(
        group=name_or_none("consumer_group", given.consumer_group),
        ids=None if given.ids is None else [check_name("id", id) for id in given.ids],
        failed_from=_moment("failed_from", given.failed_from),
        failed_until=_moment("failed_until", given.failed_until),
    )


def _moment(name: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not math.isfinite(seconds):
        raise InvalidRequest(f"{name} must be a time in seconds since 1970")
    return int(max(0.0, min(seconds, MICROS_MAX / 1e6)) * 1e6)


_LETTERS = "/admin/queues/{queue}/dlq"
ROUTES = [
    Route(
        method="GET",
        path="/admin/queues",
        endpoint=list_queues,
        summary="Every queue with its depth, age, rate and dead letters.",
        tag="admin",
        answer=AdminQueues,
    ),
    Route(
        method="GET",
        path=_LETTERS,
        endpoint=list_letters,
        summary="Dead letters of a queue, latest failure first, page by page.",
        tag="admin",
        query=AdminLettersQuery,
        answer=AdminLetters,
        statuses=(200, 404),
    ),
    Route(
        method="GET",
        path=f"{_LETTERS}/{{id}}",
        endpoint=show_letter,
        summary="One dead letter with its message, whole.",
        tag="admin",
        answer=AdminLetterDetail,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=f"{_LETTERS}/{{id}}/replay",
        endpoint=replay_letter,
        summary="Push a dead letter again, once: asked again, the answer is the same.",
        tag="admin",
        answer=AdminReplayed,
        statuses=(200, 404, 429),
    ),
    Route(
        method="POST",
        path=f"{_LETTERS}/replay",
        endpoint=replay_letters,
        summary="Push all dead letters again that match and were not replayed yet.",
        tag="admin",
        body=AdminFilter,
        body_bytes_max=2 * MESSAGE_BYTES_MAX,
        answer=AdminReplayedMany,
        statuses=(200, 404, 429),
    ),
    Route(
        method="DELETE",
        path=f"{_LETTERS}/{{id}}",
        endpoint=delete_letter,
        summary="Delete a dead letter for good.",
        tag="admin",
        answer=AdminDone,
        statuses=(200, 404),
    ),
    Route(
        method="DELETE",
        path=_LETTERS,
        endpoint=purge_letters,
        summary="Delete all dead letters that match for good.",
        tag="admin",
        query=AdminPurgeQuery,
        answer=AdminPurged,
        statuses=(200, 404),
    ),
]
