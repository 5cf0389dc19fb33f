"""Browsing: pages of messages, one with all that is known of it, delete, retry, give up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.broker.browse import Detail, ListPosition, MessageFilter, Page
from fairlane.broker.push_batch import PushRequest
from fairlane.errors import Conflict, InvalidRequest, NotFound
from fairlane.http.decode import decode, read
from fairlane.http.query import moment, name_or_none
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_browse import (
    DeadLetterBody,
    DeadLetteredMessage,
    DeletedMessage,
    MessageDetail,
    MessageList,
    MessageQuery,
    RetriedMessage,
    detail_out,
    entry_out,
    list_mode,
)
from fairlane.model.idempotency import replay_headers
from fairlane.model.ids import PartitionId, is_uuid
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.message import PushItem
from fairlane.model.names import check_name, storable
from fairlane.model.queue import Queue
from fairlane.store.contract.values import DeadFilter

if TYPE_CHECKING:
    from fairlane.http.app import App

_HOUR = 3_600_000_000
_MINUTE = 60_000_000


async def list_messages(app: App, request: Request) -> Response:
    query = read(request.query, MessageQuery)
    where = await _filter(app, query)
    before = ListPosition.parse(query.before) if query.before else None
    page = await page_of(app, where, limit=query.limit, offset=query.offset, before=before)
    answer = MessageList(
        messages=[entry_out(seen) for seen in page.messages],
        mode=list_mode(page.messages),
        next=str(page.next) if page.next else None,
    )
    return json_response(answer)


async def page_of(
    app: App, where: MessageFilter, *, limit: int, offset: int = 0, before: ListPosition | None = None
) -> Page:
    """A page; the messages before `offset` are walked over, which costs what reading them costs."""
    while offset > 0:
        skipped = await app.browser.page(where, limit=min(offset, 1000), before=before)
        if skipped.next is None:
            return Page([], None)
        offset -= len(skipped.messages)
        before = skipped.next
    return await app.browser.page(where, limit=limit, before=before)


async def _filter(app: App, query: MessageQuery) -> MessageFilter:
    if query.trace_id is not None and not is_uuid(query.trace_id):
        raise InvalidRequest(f"traceId must be a UUID, not {query.trace_id!r:.80}")
    now = await app.broker.store.now()
    until = moment("to", query.until) if query.until else now
    default = 0 if query.transaction_id or query.trace_id or query.before else now - _HOUR
    return MessageFilter(
        queues=await _queues(app, query),
        partition=name_or_none("partition", query.partition),
        since=moment("from", query.since) if query.since else default,
        until=until - until % _MINUTE + _MINUTE - 1,
        status=query.status,
        transaction_id=query.transaction_id,
        trace_id=query.trace_id,
    )


async def _queues(app: App, query: MessageQuery) -> list[Queue]:
    queues = await app.broker.store.queues.list(app.tenant)
    return [
        queue
        for queue in queues
        if query.queue in (None, queue.name)
        and query.ns in (None, queue.namespace)
        and query.task in (None, queue.task)
    ]


def message_of(request: Request) -> tuple[PartitionId, str]:
    """Partition and transactionId that the path names. What is no partition's id names no message."""
    try:
        partition = PartitionId.parse(request.params["partitionId"])
    except InvalidRequest:
        raise NotFound("Message not found") from None
    return partition, check_name("transactionId", request.params["transactionId"])


async def _detail(app: App, request: Request) -> Detail:
    return await app.browser.message(app.tenant, *message_of(request))


async def show(app: App, request: Request) -> Response:
    return json_response(detail_out(await _detail(app, request)))


async def delete(app: App, request: Request) -> Response:
    detail = await _detail(app, request)
    if not await app.broker.store.browse.delete(detail.partition_id, detail.message.position):
        raise NotFound("Message not found")
    app.broker.announce(detail.queue.id, 1)
    answer = DeletedMessage(
        success=True,
        partition_id=str(detail.partition_id),
        transaction_id=detail.message.transaction_id,
        message="Message deleted successfully",
    )
    return json_response(answer)


async def retry(app: App, request: Request) -> Response:
    """A dead letter is replayed; a message that was finished is pushed again as a copy that names it."""
    detail = await _detail(app, request)
    if detail.letters:
        message_id = await _replay(app, detail)
    elif detail.status == "completed":
        message_id = await _copy(app, detail)
    else:
        raise Conflict("the message is not finished yet: it comes by itself when its lane has reached it")
    answer = RetriedMessage(
        success=True,
        partition_id=str(detail.partition_id),
        transaction_id=detail.message.transaction_id,
        message_id=message_id,
        message="Message pushed again",
    )
    return json_response(answer)


async def _replay(app: App, detail: Detail) -> str:
    ids = [letter.id for letter in detail.letters]
    replayed = await app.broker.dead_letters.replay(detail.queue.name, DeadFilter(ids=ids[:1]))
    if not replayed:
        raise Conflict(f"the message was replayed before, as {detail.letters[0].replayed_as}")
    return replayed[0][1]


async def _copy(app: App, detail: Detail) -> str:
    message = detail.message
    item = PushItem(
        queue=detail.queue.name,
        partition=detail.partition,
        payload=bytes(message.raw),
        trace_id=message.trace_id,
        type=message.type,
        headers=replay_headers(message.transaction_id, message.headers),
    )
    [outcome] = await app.broker.intake.push(PushRequest(app.tenant, [item]))
    if outcome.error is not None:
        raise outcome.error
    return outcome.message_id or ""


async def dead_letter(app: App, request: Request) -> Response:
    body = decode(request.body, DeadLetterBody, default=DeadLetterBody())
    detail = await _detail(app, request)
    store = app.broker.store
    groups = await store.groups.list(detail.queue.id)
    if body.consumer_group is not None:
        groups = [group for group in groups if group.name == body.consumer_group]
        if not groups:
            raise NotFound("Consumer group not found")
    error = storable(body.error or "moved to the dead letters by hand", chars_max=ERROR_CHARS_MAX)
    at = (detail.partition_id, detail.message.position)
    dead = [group.name for group in groups if await store.browse.dead_letter(at[0], group.id, at[1], error) == "dead"]
    if not dead:
        raise Conflict("no group has this message still before it, so there is none that could give it up")
    app.broker.announce(detail.queue.id, 1)
    answer = DeadLetteredMessage(
        success=True,
        partition_id=str(detail.partition_id),
        transaction_id=detail.message.transaction_id,
        consumer_groups=dead,
        message="Message moved to the dead letters",
    )
    return json_response(answer)


_ONE = "/api/v1/messages/{partitionId}/{transactionId}"
ROUTES = [
    Route(
        method="GET",
        path="/api/v1/messages",
        endpoint=list_messages,
        summary="Messages without their payload, newest first.",
        tag="browse",
        query=MessageQuery,
        answer=MessageList,
    ),
    Route(
        method="GET",
        path=_ONE,
        endpoint=show,
        summary="One message with its payload and how far each group is with it.",
        tag="browse",
        answer=MessageDetail,
        statuses=(200, 404),
    ),
    Route(
        method="DELETE",
        path=_ONE,
        endpoint=delete,
        summary="Delete a message: no group gets it any more.",
        tag="browse",
        answer=DeletedMessage,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/retry",
        endpoint=retry,
        summary="Push a dead or finished message again, as a copy that names it.",
        tag="browse",
        answer=RetriedMessage,
        statuses=(200, 404, 409),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/dlq",
        endpoint=dead_letter,
        summary="Give a message up for a group, or for all that have not finished it.",
        tag="browse",
        body=DeadLetterBody,
        body_required=False,
        answer=DeadLetteredMessage,
        statuses=(200, 404, 409),
    ),
]
