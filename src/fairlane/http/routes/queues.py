"""Queues: configure, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.http.message import Request, Response, json_response
from fairlane.http.router import Route
from fairlane.http.wire import ConfigureBody, decode, options_in, options_out
from fairlane.model.names import DEFAULT_PARTITION, check_name

if TYPE_CHECKING:
    from fairlane.http.app import App


async def configure(app: App, request: Request) -> Response:
    body = decode(request.body, ConfigureBody)
    name = check_name("queue", body.queue)
    options = options_in(body.options)
    queue = await app.broker.configure(name, namespace=body.namespace, task=body.task, **options)
    [partition] = await app.engine.store.queues.born(queue.id, [DEFAULT_PARTITION])
    return json_response(
        {
            "configured": True,
            "queueId": str(queue.id),
            "partitionId": str(partition.id),
            "queue": queue.name,
            "namespace": queue.namespace,
            "task": queue.task,
            "options": options_out(queue.options),
        }
    )


async def delete(app: App, request: Request) -> Response:
    name = request.params["queue"]
    existed = await app.broker.delete_queue(name)
    return json_response({"deleted": True, "queue": name, "existed": existed})


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/configure",
        endpoint=configure,
        summary="Make a queue or replace all its options.",
        tag="queues",
        body=ConfigureBody,
    ),
    Route(
        method="DELETE",
        path="/api/v1/resources/queues/{queue}",
        endpoint=delete,
        summary="Delete a queue with all that is in it.",
        tag="queues",
    ),
]
