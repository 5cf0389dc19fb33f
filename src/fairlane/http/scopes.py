"""Scopes of what a request is about: by the queues that its body names, and by those that its ids lead to.

Callers that may do something on every queue, as nearly all, cost nothing here."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.broker.broker import Broker
from fairlane.errors import Forbidden, NotFound
from fairlane.model.access import Caller
from fairlane.model.ids import PartitionId
from fairlane.model.names import QUEUE_MODE

_PUSH = frozenset({"push", "create"})
_POP = frozenset({"pop", "create"})


def allows(caller: Caller, needs: str, queue: str | None) -> bool:
    """Whether the caller has one of the scopes for the queue; for what is of no queue, for all of them."""
    scopes = needs.split()
    return any(caller.allows_all(scope) if queue is None else caller.allows(scope, queue) for scope in scopes)


def check(caller: Caller, needs: str, *queues: str | None) -> None:
    """Forbidden unless it does, for each of them."""
    for queue in queues:
        if not allows(caller, needs, queue):
            scopes = " or ".join(scope if queue is None else f"{scope}:{queue:.100}" for scope in needs.split())
            raise Forbidden(f"{caller.name} may not do this: it needs the scope {scopes}")


async def check_pushes(broker: Broker, caller: Caller, queues: Iterable[str]) -> None:
    """Of pushes, which make a queue that is not there."""
    if caller.grants.whole >= _PUSH:
        return
    for queue in set(queues):
        caller.check("push", queue)
        if not caller.allows("create", queue) and not await broker.queues.is_there(queue):
            caller.check("create", queue)


async def check_group(broker: Broker, caller: Caller, queue: str, group: str) -> None:
    """Of pops, which make a queue and a group that are not there."""
    if caller.grants.whole >= _POP or caller.allows("create", queue):
        return
    if group != QUEUE_MODE and not await broker.groups.is_there(queue, group):
        caller.check("create", queue)


async def check_partitions(broker: Broker, caller: Caller, needs: str, ids: Iterable[PartitionId | str]) -> None:
    """NotFound for a partition that nobody knows: it may be of any queue."""
    if any(map(caller.allows_all, needs.split())):
        return
    partitions = {PartitionId.parse(id) if isinstance(id, str) else id for id in ids}
    for partition, (queue, _) in (await broker.partition_names(partitions)).items():
        if queue is None:
            raise NotFound(f"there is no partition {partition}")
        check(caller, needs, queue)


async def check_lease(broker: Broker, caller: Caller, lease: str) -> None:
    if not caller.allows_all("pop"):
        await check_partitions(broker, caller, "pop", await broker.leased(lease))
