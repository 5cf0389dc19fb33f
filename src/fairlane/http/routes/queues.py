"""Queues and their partitions: configure, list, look into, clear, delete; and what they hold together."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from fairlane.http import scopes
from fairlane.http.decode import hint
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.model.queue import QueueOptions, queue_options
from fairlane.wire import queues as wire
from fairlane.wire.queen import FOREIGN_OPTIONS

routes = Routes("queues")
_QUEUE = "/api/v1/resources/queues/{queue}"
_SPELT = {spelt: name for name, sent in wire.OPTION_NAMES.items() for spelt in (sent, name, wire.camel(name))}
"""Every name that an option may be called by."""


def options_in(given: dict[str, Any]) -> QueueOptions:
    """All options of a queue as they were sent, checked; what is not there has its default. What is wrong is said by
    the name that it was sent by."""
    named = _named(given)
    try:
        return queue_options(**{name: value for name, (_, value) in named.items()})
    except InvalidRequest as error:
        first, blank, rest = str(error).partition(" ")
        raise InvalidRequest(f"{named[first][0] if first in named else first}{blank}{rest}") from None


def _named(given: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """By our names, each with the name that it was sent by."""
    named: dict[str, tuple[str, Any]] = {}
    for spelt, value in given.items():
        if value is None or spelt in FOREIGN_OPTIONS:  # null is as good as absent
            continue
        name = _SPELT.get(spelt)
        if name is None:
            raise InvalidRequest(f"there is no option {spelt!r:.80}; {hint(spelt, _SPELT)}")
        if name in named:
            raise InvalidRequest(f"{named[name][0]} and {spelt} are one option, and it is given twice")
        named[name] = (spelt, 60 if name == "lease_seconds" and value == 0 else value)
    return named


@routes.post("/api/v1/configure", needs="configure", each=True)
async def configure(broker: Broker, caller: Caller, body: wire.ConfigureBody) -> wire.Configured:
    """Make a queue or replace all its options."""
    options, queue_id, partition_id = options_in(body.options), "", ""
    # Published clients configure a queue without a name by mistake, and count on a yes. Nothing is made, for nobody
    # could push to it, pop from it or delete it.
    if body.queue:
        caller.check("configure", body.queue)
        await _check_target(broker, caller, options)
        given = msgspec.structs.asdict(options)
        queue = await broker.queues.configure(body.queue, namespace=body.namespace, task=body.task, **given)
        queue_id, partition_id = str(queue.id), str((await broker.queues.default_partition(queue)).id)
    return wire.Configured(
        queue_id=queue_id,
        partition_id=partition_id,
        queue=body.queue,
        namespace=body.namespace or "",
        task=body.task or "",
        options=wire.options_out(options),
    )


@routes.patch(_QUEUE, needs="configure")
async def set_options(broker: Broker, caller: Caller, queue: str, body: wire.OptionsBody) -> wire.OptionsSet:
    """Change some options of a queue; the others stay as they are."""
    options = options_in(body.options)  # checked as far as each can be alone
    await _check_target(broker, caller, options)
    changed = {name: getattr(options, name) for name in _named(body.options)}
    found = await broker.queues.set_options(queue, **changed)
    return wire.OptionsSet(queue=found.name, options=wire.options_out(found.options))


async def _check_target(broker: Broker, caller: Caller, options: QueueOptions) -> None:
    """Dead letters are pushed to the queue that is named for them."""
    if isinstance(options.dead_letter_queue, str):
        await scopes.check_pushes(broker, caller, [options.dead_letter_queue])


@routes.get("/api/v1/resources/queues", needs="status", each=True, live=True)
async def list_queues(broker: Broker, caller: Caller, query: wire.QueueListQuery) -> wire.QueueList:
    """Queues with what they hold and how fast they are, newest first or as they are to be sorted."""
    return await broker.queues.page(query, caller)


@routes.get(_QUEUE, needs="status", live=True)
async def show(broker: Broker, queue: str, query: wire.PageQuery) -> wire.QueueDetail:
    """One queue with its partitions, by name."""
    return await broker.queues.show(queue, after=query.after, limit=query.limit)


@routes.get(f"{_QUEUE}/depth", needs="status", live=True)
async def depth(broker: Broker, queue: str, query: wire.DepthQuery) -> wire.QueueDepth:
    """What a queue, or one group of it, has not finished, by partition."""
    return await broker.queues.depths(queue, query.group)


@routes.delete(_QUEUE, needs="purge")
async def delete(broker: Broker, queue: str) -> wire.DeletedQueue:
    """Delete a queue with all that is in it."""
    return wire.DeletedQueue(queue=queue, existed=await broker.queues.delete(queue))


@routes.get("/api/v1/resources/partitions", needs="status", each=True, live=True)
async def partitions(broker: Broker, caller: Caller, query: wire.PartitionQuery) -> wire.PartitionList:
    """The partitions of a queue, by name."""
    caller.check("status", query.queue)
    page = await broker.queues.partitions(query.queue, after=query.after, limit=query.limit)
    return wire.PartitionList(
        queue=query.queue, partitions=page, next=page[-1].name if len(page) == query.limit else None
    )


@routes.delete("/api/v1/queues/{queue}/clear", needs="purge")
async def clear(broker: Broker, queue: str, query: wire.ClearQuery) -> wire.ClearedQueue:
    """Take all messages out of a queue, or of one partition; dead letters stay."""
    cleared = await broker.queues.clear(queue, partition=query.partition)
    return wire.ClearedQueue(queue=queue, partition=query.partition, cleared=cleared)


@routes.get("/api/v1/resources/namespaces", needs="status", each=True, live=True)
async def namespaces(broker: Broker, caller: Caller) -> wire.NamespaceList:
    """What the queues hold, by namespace."""
    return wire.NamespaceList(namespaces=await broker.statistics.namespaces(caller))


@routes.get("/api/v1/resources/tasks", needs="status", each=True, live=True)
async def tasks(broker: Broker, caller: Caller) -> wire.TaskList:
    """What the queues hold, by task."""
    return wire.TaskList(tasks=await broker.statistics.tasks(caller))


@routes.get("/api/v1/resources/overview", needs="status", each=True, live=True)
async def overview(broker: Broker, caller: Caller) -> wire.Overview:
    """What all queues hold together."""
    return await broker.statistics.overview(caller)
