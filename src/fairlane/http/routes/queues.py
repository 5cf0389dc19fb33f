"""Queues and their partitions: configure, list, show, clear, delete; and totals."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from fairlane.http.auth import scopes
from fairlane.http.request_body import hint
from fairlane.http.router import Routes
from fairlane.model.principal import Principal
from fairlane.model.queue import QueueOptions, queue_options
from fairlane.wire import queues as wire

routes = Routes("queues")
IGNORED_OPTIONS: Final[set[str]] = set()
"""Options that are ignored because published clients send them."""
_QUEUE = "/api/v1/resources/queues/{queue}"
_SPELT = {spelt: name for name, sent in wire.OPTION_NAMES.items() for spelt in (sent, name, wire.camel(name))}
"""Option by any of its names."""


def options_in(given: dict[str, Any]) -> QueueOptions:
    """Return the checked options of a request, with defaults for missing ones.

    Raises InvalidRequest with the name that the client sent.
    """
    named = _named(given)
    try:
        return queue_options(**{name: value for name, (_, value) in named.items()})
    except InvalidRequest as error:
        first, blank, rest = str(error).partition(" ")
        raise InvalidRequest(f"{named[first][0] if first in named else first}{blank}{rest}") from None


def _named(given: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the options by our names, each with the name that was sent."""
    named: dict[str, tuple[str, Any]] = {}
    for spelt, value in given.items():
        if value is None or spelt in IGNORED_OPTIONS:  # null counts as absent
            continue
        name = _SPELT.get(spelt)
        if name is None:
            raise InvalidRequest(f"there is no option {spelt!r:.80}; {hint(spelt, wire.OPTION_NAMES.values())}")
        if name in named:
            raise InvalidRequest(f"{named[name][0]} and {spelt} are one option, and it is given twice")
        named[name] = (spelt, 60 if name == "lease_seconds" and value == 0 else value)
    return named


@routes.post("/api/v1/configure", needs="configure", each=True)
async def configure(broker: Broker, caller: Principal, body: wire.ConfigureBody) -> wire.Configured:
    """Create a queue or replace all its options."""
    options, queue_id, partition_id = options_in(body.options), "", ""
    # Published clients configure a queue without a name by mistake, and expect success. Nothing is created, because
    # such a queue could not be used or deleted.
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
async def set_options(broker: Broker, caller: Principal, queue: str, body: wire.OptionsBody) -> wire.OptionsSet:
    """Change some options of a queue, and keep the others."""
    options = options_in(body.options)  # checked as far as each can be checked alone
    await _check_target(broker, caller, options)
    changed = {name: getattr(options, name) for name in _named(body.options)}
    found = await broker.queues.set_options(queue, **changed)
    return wire.OptionsSet(queue=found.name, options=wire.options_out(found.options))


async def _check_target(broker: Broker, caller: Principal, options: QueueOptions) -> None:
    """Check the scope for the dead letter queue, because dead letters are pushed to it."""
    if isinstance(options.dead_letter_queue, str):
        await scopes.check_pushes(broker, caller, [options.dead_letter_queue])


@routes.get("/api/v1/resources/queues", needs="status", each=True, live=True)
async def list_queues(broker: Broker, caller: Principal, query: wire.QueueListQuery) -> wire.QueueList:
    """List queues with their contents and rates, newest first unless sorted otherwise."""
    return await broker.queues.page(query, caller)


@routes.get(_QUEUE, needs="status", live=True)
async def show(broker: Broker, queue: str, query: wire.PageQuery) -> wire.QueueDetail:
    """Show one queue with its partitions, by name."""
    return await broker.queues.show(queue, after=query.after, limit=query.limit)


@routes.get(f"{_QUEUE}/depth", needs="status", live=True)
async def depth(broker: Broker, queue: str, query: wire.DepthQuery) -> wire.QueueDepth:
    """Show the unfinished messages of a queue, or of one group, by partition."""
    return await broker.queues.depths(queue, query.group)


@routes.delete(_QUEUE, needs="purge")
async def delete(broker: Broker, queue: str) -> wire.DeletedQueue:
    """Delete a queue with its contents."""
    return wire.DeletedQueue(queue=queue, existed=await broker.queues.delete(queue))


@routes.get("/api/v1/resources/partitions", needs="status", each=True, live=True)
async def partitions(broker: Broker, caller: Principal, query: wire.PartitionQuery) -> wire.PartitionList:
    """List the partitions of a queue, by name."""
    caller.check("status", query.queue)
    page = await broker.queues.partitions(query.queue, after=query.after, limit=query.limit)
    return wire.PartitionList(
        queue=query.queue, partitions=page, next=page[-1].name if len(page) == query.limit else None
    )


@routes.delete("/api/v1/queues/{queue}/clear", needs="purge")
async def clear(broker: Broker, queue: str, query: wire.ClearQuery) -> wire.ClearedQueue:
    """Delete all messages of a queue or of one partition. Dead letters are kept."""
    cleared = await broker.queues.clear(queue, partition=query.partition)
    return wire.ClearedQueue(queue=queue, partition=query.partition, cleared=cleared)


@routes.get("/api/v1/resources/namespaces", needs="status", each=True, live=True)
async def namespaces(broker: Broker, caller: Principal) -> wire.NamespaceList:
    """Show the contents of the queues, by namespace."""
    return wire.NamespaceList(namespaces=await broker.queues.statistics.namespaces(caller))


@routes.get("/api/v1/resources/tasks", needs="status", each=True, live=True)
async def tasks(broker: Broker, caller: Principal) -> wire.TaskList:
    """Show the contents of the queues, by task."""
    return wire.TaskList(tasks=await broker.queues.statistics.tasks(caller))


@routes.get("/api/v1/resources/overview", needs="status", each=True, live=True)
async def overview(broker: Broker, caller: Principal) -> wire.Overview:
    """Show the contents of all queues together."""
    return await broker.queues.statistics.overview(caller)
