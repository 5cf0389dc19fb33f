"""The admin API: the state of queues, and actions on dead letters."""

from __future__ import annotations

import math

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest, NotFound
from fairlane.http.preview import preview_of
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.moment import MICROS_MAX, Moment
from fairlane.model.names import check_name, name_or_none
from fairlane.model.principal import Principal
from fairlane.store.contract.values import DeadFilter
from fairlane.wire import admin as wire
from fairlane.wire.dead_letters import DeadLetter, ReplayBody

routes = Routes("admin")
_LETTERS = "/admin/queues/{queue}/dlq"


@routes.get("/admin/queues", needs="status", each=True)
async def list_queues(broker: Broker, caller: Principal) -> wire.AdminQueues:
    """List all queues with depth, age, rate and dead letters."""
    statistics = broker.queues.statistics
    return wire.AdminQueues(queues=await statistics.admin_queues(caller), stats_age=statistics.age_seconds())


@routes.get(_LETTERS, needs="browse", live=True)
async def list_letters(broker: Broker, queue: str, query: wire.AdminLettersQuery) -> wire.AdminLetters:
    """List dead letters of a queue, latest failure first, page by page."""
    where = _choice(queue, query)
    page = await broker.dead_letters.page(queue, where, limit=query.limit + 1, before=_before(query.cursor))
    last = page[query.limit - 1] if len(page) > query.limit else None
    return wire.AdminLetters(
        dead_letters=[_letter(one) for one in page[: query.limit]],
        next=None if last is None else f"{last.failed_at}_{last.id}",
    )


def _before(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    failed_at, _, id = cursor.partition("_")
    if not (failed_at.isascii() and failed_at.isdecimal() and len(failed_at) < 19 and 0 < len(id) < 100):
        raise InvalidRequest("the cursor is not the `next` of a page")
    return int(failed_at), id


def _letter(letter: DeadLetter) -> wire.AdminLetter:
    return wire.AdminLetter(
        id=letter.id,
        failed_at=letter.failed_at / 1e6,
        error=letter.error,
        attempts=letter.attempts,
        preview=preview_of(letter.raw),
    )


@routes.get(f"{_LETTERS}/{{id}}", needs="browse", live=True)
async def show_letter(broker: Broker, queue: str, id: str) -> wire.AdminLetterDetail:
    """Show one dead letter with its complete message."""
    letter = await broker.dead_letters.get(queue, id)
    return wire.AdminLetterDetail(
        id=letter.id,
        failed_at=letter.failed_at / 1e6,
        error=letter.error,
        attempts=letter.attempts,
        first_failed_at=letter.first_failed_at / 1e6,
        partition=letter.partition,
        consumer_group=letter.group,
        message_id=letter.message_id,
        transaction_id=letter.transaction_id,
        data=letter.raw,
        created_at=letter.created_at / 1e6,
        replayed_at=None if letter.replayed_at is None else letter.replayed_at / 1e6,
        new_message_id=letter.replayed_as,
        replay_result=await _replay_result(broker, letter),
    )


async def _replay_result(broker: Broker, letter: DeadLetter) -> wire.AdminReplayResult | None:
    """Return the result of the replay of a dead letter, or None if the replayed message does not exist."""
    if letter.replayed_as is None:
        return None
    try:
        found = await broker.results.at(letter.partition_id, letter.replayed_as, group=letter.group)
    except NotFound:  # it waits as an operation, or retention has deleted it
        return None
    return wire.AdminReplayResult(status=found.status, result=found.raw, error=found.error)


@routes.post(f"{_LETTERS}/{{id}}/replay", needs="replay")
async def replay_letter(broker: Broker, queue: str, id: str) -> wire.AdminReplayed:
    """Replay a dead letter once. Repeated calls return the same answer."""
    letter = await broker.dead_letters.get(queue, id)
    replayed = dict(await broker.dead_letters.replay(queue, DeadFilter(ids=[id])))
    new = replayed.get(id) or letter.replayed_as or (await broker.dead_letters.get(queue, id)).replayed_as
    if new is None:
        raise broker.dead_letters.missing(queue, id)
    return wire.AdminReplayed(new_message_id=new)


@routes.post(f"{_LETTERS}/replay", needs="replay", body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def replay_letters(broker: Broker, queue: str, body: wire.AdminFilter) -> wire.AdminReplayedMany:
    """Replay all matching dead letters that were not replayed yet."""
    replayed = await broker.dead_letters.replay(queue, _choice(queue, body, body.ids))
    return wire.AdminReplayedMany(replayed=[wire.AdminReplayedOne(id=id, new_message_id=new) for id, new in replayed])


@routes.delete(f"{_LETTERS}/{{id}}", needs="purge")
async def delete_letter(broker: Broker, queue: str, id: str) -> wire.AdminDone:
    """Delete a dead letter for good."""
    if not await broker.dead_letters.purge(queue, DeadFilter(ids=[check_name("id", id)])):
        raise broker.dead_letters.missing(queue, id)
    return wire.AdminDone()


@routes.delete(_LETTERS, needs="purge")
async def purge_letters(broker: Broker, queue: str, query: wire.AdminChoice) -> wire.AdminPurged:
    """Delete all matching dead letters for good."""
    return wire.AdminPurged(purged=await broker.dead_letters.purge(queue, _choice(queue, query)))


def _choice(queue: str, given: wire.AdminChoice, ids: list[str] | None = None) -> ReplayBody:
    return ReplayBody(
        queue=queue,
        consumer_group=name_or_none("consumer_group", given.consumer_group),
        partition=given.partition,
        error=given.error,
        ids=None if ids is None else [check_name("id", id) for id in ids],
        since=_moment("failed_from", given.failed_from),
        until=_moment("failed_until", given.failed_until),
    )


def _moment(name: str, seconds: float | None) -> Moment | None:
    if seconds is None:
        return None
    if not math.isfinite(seconds):
        raise InvalidRequest(f"{name} must be a time in seconds since 1970")
    return Moment(round(max(0.0, min(seconds, MICROS_MAX / 1e6)) * 1e6))
