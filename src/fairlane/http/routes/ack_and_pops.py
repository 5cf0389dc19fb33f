"""POST /api/v1/ack-and-pop/...: acks finished messages and leases the next ones in one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlane.broker.ack import AckRequest
from fairlane.broker.pop_outcome import PopOutcome
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.http.problems import problem
from fairlane.http.router import Routes
from fairlane.http.routes.acks import decode_batch, settle_acks
from fairlane.http.routes.pops import checked_pop, pop_answer
from fairlane.http.server import Request, Response
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.model.outcome import AckOutcome
from fairlane.wire.ack import AckBatch
from fairlane.wire.described import AckedAndPoppedMessages
from fairlane.wire.pop import PopQuery

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("messages")


@routes.post(
    "/api/v1/ack-and-pop/queue/{queue}",
    "/api/v1/ack-and-pop/queue/{queue}/partition/{partition}",
    needs="pop",
    audited=False,
    long=True,
    body=AckBatch,
    query=PopQuery,
    answer=AckedAndPoppedMessages,
    body_bytes_max=REQUEST_BYTES_MAX,
    statuses=(200, 202),
)
async def ack_and_pop(app: HttpApp, request: Request) -> Response:
    """Ack messages like `POST /api/v1/ack/batch`, and pop like `GET /api/v1/pop`, for one group.

    The acks are applied at once, also if the pop waits. If the pop fails after them, `problem` has the reason.
    """
    broker = app.broker_of(request)
    checked = await checked_pop(broker, request)
    asked = checked.request
    bodies, group, items = decode_batch(request)
    if group is not None and group != asked.group:
        raise InvalidRequest(
            f"consumerGroup of the acks is {group!r:.80} and of the pop {asked.group!r:.80}; give it once, in the query"
        )
    popped: PopOutcome | FairlaneError = PopOutcome(asked.queue, asked.group, None, [])

    async def settle(acks: AckRequest) -> Sequence[AckOutcome]:
        nonlocal popped
        outcomes, popped = await broker.requests.ack_and_pop(acks, asked)
        return outcomes

    try:
        acked = await settle_acks(broker, request, bodies, asked.group, items, settle)
    except BaseException:
        if isinstance(popped, PopOutcome) and popped.lease is not None:
            broker.messages.give_back(popped.lease)
        raise
    more = f',"acknowledgments":{acked.body.decode()}'
    if isinstance(popped, FairlaneError):
        more += f',"problem":{problem(popped, request).body.decode()}'
        popped = PopOutcome(asked.queue, asked.group, None, [])
    return pop_answer(app, checked, popped, more=more, status=acked.status)
