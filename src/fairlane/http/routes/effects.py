"""Effects: what a handler did once for a message, kept for its later attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from fairlane.errors import NotFound
from fairlane.http.decode import decode, read
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.model.ids import PartitionId
from fairlane.model.limits import RESULT_BYTES_MAX, SECONDS_MAX
from fairlane.model.message import check_json
from fairlane.model.names import check_name

if TYPE_CHECKING:
    from fairlane.http.app import App

_KEEP_SECONDS = 7 * 24 * 3600


class EffectQuery(msgspec.Struct, rename="camel", kw_only=True):
    partition_id: str
    """Of the message."""


class EffectBody(msgspec.Struct, rename="camel", kw_only=True):
    partition_id: str
    """Of the message."""
    value: msgspec.Raw
    seconds: Annotated[int, msgspec.Meta(ge=1, le=SECONDS_MAX)] = _KEEP_SECONDS


class EffectAnswer(msgspec.Struct, rename="camel", kw_only=True):
    key: str
    value: msgspec.Raw
    """The first one that was kept."""


async def get(app: App, request: Request) -> Response:
    key = check_name("key", request.params["key"])
    partition = PartitionId.parse(read(request.query, EffectQuery).partition_id)
    found = await app.broker.store.effects.get(app.tenant, key, partition)
    if found is None:
        raise NotFound("there is no such effect")
    return json_response(EffectAnswer(key=key, value=msgspec.Raw(found)))


async def keep(app: App, request: Request) -> Response:
    key = check_name("key", request.params["key"])
    body = decode(request.body, EffectBody)
    check_json("value", body.value, bytes_max=RESULT_BYTES_MAX)
    saved = await app.broker.store.effects.keep(
        app.tenant, key, PartitionId.parse(body.partition_id), bytes(body.value), seconds=body.seconds
    )
    return json_response(EffectAnswer(key=key, value=msgspec.Raw(saved)))


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/effects/{key}",
        endpoint=get,
        summary="What a handler did once for a message.",
        tag="effects",
        query=EffectQuery,
        answer=EffectAnswer,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path="/api/v1/effects/{key}",
        endpoint=keep,
        summary="Keep what a handler did once, unless something is kept under the key; the answer is what is kept.",
        tag="effects",
        body=EffectBody,
        answer=EffectAnswer,
    ),
]
