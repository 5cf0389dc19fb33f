"""Authorization: checks that a caller has the scopes that a request needs.

Some requests name their queues in the body, or by ids of partitions and leases. A caller with scopes for all queues
skips the lookups.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.broker.broker import Broker
from fairlane.errors import Forbidden, NotFound
from fairlane.http.router import Route
from fairlane.model.ids import PartitionId
from fairlane.model.names import DEFAULT_TENANT, QUEUE_MODE
from fairlane.model.principal import KNOWN, Principal

_PUSH = frozenset({"push", "create"})
_POP = frozenset({"pop", "create"})


def allows(caller: Principal, needs: str, queue: str | None) -> bool:
    """Return True if the caller has one of the scopes for the queue, or for all queues if `queue` is None."""
    scopes = needs.split()
    return any(caller.allows_all(scope) if queue is None else caller.allows(scope, queue) for scope in scopes)


def check(caller: Principal, needs: str, *queues: str | None) -> None:
    """Raise Forbidden unless the caller has one of the scopes for each of the queues."""
    for queue in queues:
        if not allows(caller, needs, queue):
            scopes = " or ".join(scope if queue is None else f"{scope}:{queue:.100}" for scope in needs.split())
            raise Forbidden(f"{caller.name} may not do this: it needs the scope {scopes}")


def check_route(caller: Principal, route: Route, queue: str | None) -> None:
    """Raise Forbidden unless the caller has one of the scopes that a route needs.

    Without `queue` the scope must be for all queues, or for any queue if the endpoint checks each (`route.each`).
    Routes for operators are reserved to the default tenant.
    """
    if route.operator and caller.tenant != DEFAULT_TENANT:
        raise Forbidden(f"{caller.name} may not {route.method} {route.path}: it concerns all tenants")
    scopes = route.needs.split()
    if route.needs == KNOWN:
        return
    if queue is not None:
        allowed = any(caller.allows(scope, queue) for scope in scopes)
    elif route.each:
        allowed = caller.allows_some(*scopes)
    else:
        allowed = any(map(caller.allows_all, scopes))
    if not allowed:
        scope = " or ".join(scopes if queue is None else [f"{scope}:{queue:.100}" for scope in scopes])
        wide = "" if queue is not None or route.each else ", for all queues"
        raise Forbidden(f"{caller.name} may not {route.method} {route.path}: it needs the scope {scope}{wide}")


async def check_pushes(broker: Broker, caller: Principal, queues: Iterable[str]) -> None:
    """Raise Forbidden unless the caller may push to the queues, and create those that do not exist."""
    if caller.grants.whole >= _PUSH:
        return
    for queue in set(queues):
        caller.check("push", queue)
        if not caller.allows("create", queue) and not await broker.queues.exists(queue):
            caller.check("create", queue)


async def check_group(broker: Broker, caller: Principal, queue: str, group: str) -> None:
    """Raise Forbidden if a pop would create a group and the caller may not create one."""
    if caller.grants.whole >= _POP or caller.allows("create", queue):
        return
    if group != QUEUE_MODE and not await broker.groups.exists(queue, group):
        caller.check("create", queue)


async def check_partitions(broker: Broker, caller: Principal, needs: str, ids: Iterable[PartitionId | str]) -> None:
    """Raise Forbidden unless the caller has the scopes for the queues of the partitions.

    Raises NotFound for an unknown partition, because it may belong to any queue.
    """
    if any(map(caller.allows_all, needs.split())):
        return
    partitions = {PartitionId.parse(id) if isinstance(id, str) else id for id in ids}
    for partition, (queue, _) in (await broker.queues.partition_names(partitions)).items():
        if queue is None:
            raise NotFound(f"there is no partition {partition}")
        check(caller, needs, queue)


async def check_lease(broker: Broker, caller: Principal, lease: str) -> None:
    if not caller.allows_all("pop"):
        await check_partitions(broker, caller, "pop", await broker.messages.leased(lease))
