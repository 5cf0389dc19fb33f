"""Queues and tenants over several cells: where a queue is, and where a new one is placed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from fairlane.errors import Conflict, InvalidRequest, NotFound, QueueElsewhere, StoreUnavailable, Unavailable
from fairlane.model.queue import SAME_AS, Partition, Queue, QueueOptions
from fairlane.model.tenant import Quotas
from fairlane.store.cells.directory import SQL
from fairlane.store.cells.link import CHECK_SECONDS
from fairlane.store.cells.router import Arguments, CellRouter, Named, concatenated
from fairlane.store.families.queues import CELLS, DEFAULTS, changed_concurrently
from fairlane.store.families.specs import SpecChange

_ROUNDS_MAX = 10
_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds to wait for a queue during its switch to another cell.

The switch takes a few round trips, unless the mover died.
"""
_VERSIONS_MAX = 1000


async def get(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Queue | None:
    tenant, name = args
    return (await _existing(router, tenant, [name])).get(name)


async def _existing(router: CellRouter, tenant: str, names: Sequence[str]) -> dict[str, Queue]:
    """Return the queues that exist. Waits a moment for a queue that is switching to another cell.

    Queues of the home need no lookup in the directory.
    """
    where = {name: router.directory.placed.get((tenant, name), 0) for name in names}
    found: dict[str, Queue] = {}
    waited = False
    for pause in _PAUSES:
        found |= await _ask(router, tenant, where, make=False)
        missing = [name for name in where if name not in found]
        if not missing:
            return found
        cells, waiting = await router.directory.read_now(tenant, missing)
        before, where = where, {name: cells.get(name, 0) for name in missing}
        if not (waiting or waited) and all(before[name] == cell for name, cell in where.items()):
            return found
        waited = waiting
        if waiting:
            await asyncio.sleep(pause)
    raise QueueElsewhere(f"a queue of {names!r:.200} is being moved to another cell; try again")


async def _ask(
    router: CellRouter, tenant: str, where: Mapping[str, int], *, make: bool, options: QueueOptions = DEFAULTS
) -> dict[str, Queue]:
    """Return queues from their cells."""
    found: dict[str, Queue] = {}
    by_cell: dict[int, list[str]] = defaultdict(list)
    for name, cell in where.items():
        by_cell[cell].append(name)
    for cell, names in by_cell.items():
        queues = await _with_tenant(router, cell, "ensure_all", tenant, names, make=make, options=options)
        found |= {queue.name: queue for queue in queues}
        if any(router.cell(queue.id) != cell for queue in queues):  # moved since this broker last looked
            await router.refresh()
            router.moved.update({queue.id: cell for queue in queues if router.cell(queue.id) != cell})
    return found


async def _with_tenant(router: CellRouter, cell: int, verb: str, tenant: str, *args: Any, **named: Any) -> Any:
    """Call a verb that may create a queue. A cell gets the rows of tenants when it gets their first queue."""
    try:
        return await router.at(cell, "queues", verb, tenant, *args, **named)
    except NotFound:
        if cell == 0 or await router.home.call("tenants", "get", (tenant,), {}) is None:
            raise
        await router.at(cell, "tenants", "make", tenant, Quotas())
        return await router.at(cell, "queues", verb, tenant, *args, **named)


async def ensure(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Queue:
    tenant, name, *rest = args
    options = rest[0] if rest else named.pop("options", DEFAULTS)
    [queue] = await ensure_all(router, family, verb, (tenant, [name]), {"options": options, **named})
    return queue


async def ensure_all(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> list[Queue]:
    """Return queues. Missing ones are created in a cell that their options name, or else in one that is chosen."""
    tenant, names = args
    options: QueueOptions = named.get("options", DEFAULTS)
    for _ in range(_ROUNDS_MAX):
        found = await _existing(router, tenant, names)
        missing = [name for name in dict.fromkeys(names) if name not in found]
        if missing and named.get("make", True):
            cell = await _cell_for(router, tenant, options, named.get("beside"))
            placed = await _place(router, tenant, missing, cell)
            try:
                found |= await _ask(router, tenant, placed, make=True, options=options)
            except QueueElsewhere:  # another broker placed one of them just now
                for where in set(placed.values()):
                    await _forget_departure(router, tenant, missing, where)
                continue
        return [found[name] for name in dict.fromkeys(names) if name in found]
    raise QueueElsewhere(f"a queue of {names!r:.200} kept being placed elsewhere; try again")


async def _place(
    router: CellRouter, tenant: str, names: Sequence[str], cell: int, *, always: bool = False
) -> dict[str, int]:
    """Place new queues. Returns the cell of each, also of those that were placed before.

    Queues of the home are placed only if `always`, because creating one there fails if it is in another cell.
    """
    placed = await router.directory.find(tenant, names)
    rest = [name for name in names if name not in placed]
    if rest and (cell or always):
        placed |= await router.directory.assign(tenant, rest, cell)
    return {name: placed.get(name, 0) for name in names}


async def _forget_departure(router: CellRouter, tenant: str, names: Sequence[str], cell: int) -> None:
    """Let a cell create queues that moved away from it and were deleted, if the home has placed them there again."""
    placed, on_the_way = await router.directory.read_now(tenant, names)
    returned = [name for name in names if placed.get(name) == cell]
    if returned and not on_the_way:
        await (await router.link(cell)).opened.database.write(SQL["returned"], tenant, returned)


async def _cell_for(router: CellRouter, tenant: str, options: QueueOptions, beside: str | None = None) -> int:
    """Return the cell for a new queue.

    That is the cell of the queue beside it, the cell in its options, the cell of its dead letters, or the emptiest one.
    """
    target = beside or ("" if options.cell else options.dead_letter_queue)
    if isinstance(target, str) and target and (queue := (await _existing(router, tenant, [target])).get(target)):
        return router.cell(queue.id)
    return await named_cell(router, tenant, options.cell) if options.cell else await router.choose()


async def named_cell(router: CellRouter, tenant: str, text: str) -> int:
    """Return the cell that the option `cell` of a queue names. Raises InvalidRequest if there is none."""
    if text.startswith(SAME_AS):
        name = text.removeprefix(SAME_AS).strip()
        if (queue := (await _existing(router, tenant, [name])).get(name)) is None:
            raise InvalidRequest(f"cell {text!r:.80}: there is no queue {name!r:.80}; create it first")
        return router.cell(queue.id)
    cell = int(text)
    states = {one.number: one.state for one in await router.directory.load()} or {0: "open"}
    if cell not in states:
        known = ", ".join(map(str, sorted(states)))
        raise InvalidRequest(f"there is no cell {cell}; known are {known} (`fairlane cluster status`)")
    if states[cell] != "open":
        raise Conflict(f"cell {cell} is {states[cell]} and takes no new queues; name another one")
    return cell


async def configure(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Queue:
    """Create or configure a queue in its cell. Raises Conflict if its options name another cell."""
    tenant, name, options = args
    for _ in range(_ROUNDS_MAX):
        queue = (await _existing(router, tenant, [name])).get(name)
        if queue is None:
            wanted = await _cell_for(router, tenant, options)
            cell = (await _place(router, tenant, [name], wanted))[name]
        else:
            cell = router.cell(queue.id)
        await _check(router, tenant, name, options, cell)
        try:
            configured: Queue = await _with_tenant(router, cell, "configure", tenant, name, options, **named)
            return configured
        except QueueElsewhere:
            await _forget_departure(router, tenant, [name], cell)
    raise QueueElsewhere(f"queue {name!r:.80} kept being placed elsewhere; try again")


async def _check(router: CellRouter, tenant: str, name: str, options: QueueOptions, cell: int) -> None:
    """Raise Conflict if options do not go with the cell that a queue is in."""
    if options.cell and (wanted := await named_cell(router, tenant, options.cell)) != cell:
        raise Conflict(
            f"queue {name!r:.80} is in cell {cell}, not in cell {wanted}: the cell is chosen when the queue is created"
        )
    target = options.dead_letter_queue
    if isinstance(target, str):
        found = (await _existing(router, tenant, [target])).get(target)
        if found is not None and router.cell(found.id) != cell:
            raise Conflict(
                f"queue {name!r:.80} is in cell {cell}, and its dead letter queue {target!r:.80} in cell "
                f"{router.cell(found.id)}; name one that was created with `cell: same-as {name}`"
            )


async def delete(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> bool:
    """Delete a queue. Its placement stays, so that a queue of this name is created in the same cell."""
    tenant, name = args
    queue = (await _existing(router, tenant, [name])).get(name)
    if queue is None:
        return False
    deleted = bool(await router.at(router.cell(queue.id), family, verb, tenant, name))
    if router.cell(queue.id):
        await router.directory.forget_keys(queue.id)
    return deleted


class CellTargetQueues:
    """The queues that the dead letters of one cell are forwarded to. They are in the same cell."""

    def __init__(self, router: CellRouter, cell: int) -> None:
        self._router = router
        self._cell = cell

    async def ensure(self, tenant: str, name: str, options: QueueOptions = DEFAULTS) -> Queue:
        """Return the queue, created in this cell if missing. Raises NotFound if it is in another cell."""
        queue = (await _existing(self._router, tenant, [name])).get(name)
        cell = self._router.cell(queue.id) if queue else (await _place(self._router, tenant, [name], self._cell))[name]
        if cell != self._cell:
            raise NotFound(f"queue {name!r:.80} is in cell {cell}, and letters are forwarded within cell {self._cell}")
        found = await _ask(self._router, tenant, {name: cell}, make=True, options=options)
        return found[name]

    async def ensure_partitions(self, queue_id: int, names: Sequence[str]) -> list[Partition]:
        found: list[Partition] = await self._router.at(self._cell, "queues", "ensure_partitions", queue_id, names)
        return found


async def all_queues(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> list[Queue]:
    """Return all queues, newest first. Cells that are down are left out."""
    queues = concatenated(await router.read(family, verb, args, named))
    return sorted(queues, key=lambda queue: (queue.created_at, queue.id), reverse=True)


async def ensure_partitions_of(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> list[Any]:
    [wanted] = args
    by_cell: dict[int, dict[int, Any]] = defaultdict(dict)
    for queue_id, names in wanted.items():
        by_cell[router.cell(queue_id)][queue_id] = names
    return [one for cell, some in by_cell.items() for one in await router.at(cell, family, verb, some, **named)]


async def changes(
    router: CellRouter, family: str, verb: str, args: Arguments, named: Named
) -> tuple[int, list[int] | None]:
    """Return the changes of all cells since a version, which is the sum of the versions of the cells.

    A cell that is unavailable has no changes until it is available again.
    """
    [since] = args
    known = router.versions.get(since, {})
    complete = known.keys() == router.links.keys()
    versions: dict[int, int] = {}
    ids: list[int] = []
    unavailable = 0
    for cell, link in sorted(router.links.items()):
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                versions[cell], found = await link.call(family, verb, (known.get(cell, 0),), {})
        except (Unavailable, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                link.check_soon()
            versions[cell] = known.get(cell, 0)
            unavailable += 1
            if unavailable == len(router.links):
                raise StoreUnavailable(f"no cell is available: {error}") from error
            continue
        complete = complete and found is not None
        ids += found or []
    if CELLS in ids or not complete:
        await router.reload()
    version = sum(versions.values())
    router.versions[version] = versions
    for old in list(router.versions)[:-_VERSIONS_MAX]:
        del router.versions[old]
    return version, [id for id in ids if id != CELLS] if complete else None


async def delete_tenant(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> bool:
    """Delete a tenant in every cell, in the home last. Raises Conflict, and deletes nothing, while it has queues."""
    [name] = args
    queues = sum(counts[0] for counts in await router.everywhere(family, "counts", args, named))
    if queues and await router.home.call(family, "get", args, named) is not None:
        raise Conflict(f"tenant {name!r:.80} still has {queues} queues; delete them first")
    for cell in sorted(router.links, reverse=True)[:-1]:
        if await router.at(cell, family, "get", name) is not None and name != "default":
            await router.at(cell, family, verb, name)
    return bool(await router.home.call(family, verb, args, named))


async def apply_spec(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Apply a spec: its queues in their cells, then the version, the schedules and the queues of the home.

    Each cell is changed completely or not at all. If a later one refuses, the next plan has the rest.
    """
    change: SpecChange = args[0]
    if await router.home.call(family, "get", (change.tenant, change.spec.version), {}) is not None:
        raise Conflict("another spec was applied meanwhile; plan again")
    new = {queue.name: queue.after for queue in change.queues if queue.before is None}
    names = {*new, *(queue.name for queue in change.queues), *change.queues_gone, *change.declared}
    names |= {*change.mapped, *change.unmapped}
    there = await _existing(router, change.tenant, sorted(names))
    for queue in change.queues:
        if queue.before != (there[queue.name].options if queue.name in there else None):
            raise changed_concurrently(queue.name)
        if queue.before is not None and queue.after.cell:
            await _check(router, change.tenant, queue.name, queue.after, router.cell(there[queue.name].id))
    where = {name: router.cell(queue.id) for name, queue in there.items()}
    for name, options in sorted(new.items(), key=lambda one: one[1].cell.startswith(SAME_AS)):
        if name not in where:
            beside = options.cell.removeprefix(SAME_AS).strip() if options.cell.startswith(SAME_AS) else ""
            wanted = where[beside] if beside in where else await _cell_for(router, change.tenant, options)
            where |= await _place(router, change.tenant, [name], wanted, always=True)
    for name in change.declared.keys() - where.keys():
        where |= await _place(router, change.tenant, [name], 0)

    async def in_other_cells() -> None:
        for cell in sorted(router.links, reverse=True)[:-1]:
            part = _part(change, where, cell)
            if part.declared or part.queues or part.queues_gone or part.unmapped:
                await _ensure_tenant(router, cell, change.tenant)
            await router.at(cell, family, "declare", part)

    home = replace(_part(change, where, 0), declared=change.declared, schedules=change.schedules)
    home = replace(home, schedules_gone=change.schedules_gone)
    return await router.home.call(family, verb, (home,), {"elsewhere": in_other_cells})


async def _ensure_tenant(router: CellRouter, cell: int, tenant: str) -> None:
    if await router.at(cell, "tenants", "get", tenant) is None:
        await router.at(cell, "tenants", "make", tenant, Quotas())


def _part(change: SpecChange, where: Mapping[str, int], cell: int) -> SpecChange:
    """Return what a spec changes in one cell."""

    def here(name: str) -> bool:
        return where.get(name, 0) == cell

    return replace(
        change,
        queues=tuple(queue for queue in change.queues if here(queue.name)),
        queues_gone=tuple(filter(here, change.queues_gone)),
        declared={name: options for name, options in change.declared.items() if here(name)},
        mapped=tuple(filter(here, change.mapped)),
        unmapped=tuple(filter(here, change.unmapped)),
        schedules=(),
        schedules_gone=(),
    )
