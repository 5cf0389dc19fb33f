"""The router: sends each call to the cell that its ids name, or to several cells, and merges their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

from fairlane.errors import OutcomeUnknown, QueueElsewhere, StoreUnavailable
from fairlane.model.ids import PartitionId, cell_of
from fairlane.model.lease import LeaseId
from fairlane.store.cells.directory import Directory
from fairlane.store.cells.link import CellDown, CellLink

LOOK_SECONDS = 1.0
"""Minimum time between two lookups of an unknown cell."""
_PARTITIONS_MAX = 100_000
Arguments = tuple[Any, ...]
Named = dict[str, Any]
_NAMING = ("queue_id", "slice", "ack", "group_id", "claim", "lease", "partition", "partition_id", "id")
"""Fields that determine the cell of a value; the first one present counts.

Queues and groups are found faster than partitions.
"""
Id = int | PartitionId
"""The id of a partition, of a queue, or of a group, which is negative here: queues and groups have the same numbers."""


def id_named(value: Any) -> Id:
    """Return the id in a value that leads to its cell."""
    if isinstance(value, int | PartitionId):
        return value
    if isinstance(value, LeaseId):
        return -value.group_id
    if isinstance(value, tuple):
        return id_named(value[0])
    name, found = next((name, found) for name in _NAMING if (found := getattr(value, name, None)))
    return -int(found) if name == "group_id" else id_named(found)


def cell_named(value: Any) -> int:
    """Return the cell that an id, or a value with an id, names."""
    id = id_named(value)
    return id.cell if isinstance(id, PartitionId) else cell_of(abs(id))


class CellRouter:
    """The links to all cells, and ways to call several of them."""

    def __init__(
        self,
        home: CellLink,
        directory: Directory,
        reload: Callable[[], Awaitable[None]],
        choose: Callable[[], Awaitable[int]],
    ) -> None:
        """Create the router.

        `reload` brings the links up to date with the directory, and `choose` returns the cell for a new queue.
        """
        self.home = home
        self.directory = directory
        self.reload = reload
        self.choose = choose
        self.links: dict[int, CellLink] = {0: home}
        self.versions: dict[int, dict[int, int]] = {}
        """The versions of each cell's catalogue, by the version that was returned for all of them."""
        self._looked_at = 0.0
        self.moved: dict[int, int] = {}
        """Cells of queues and groups that are not in the cell that their ids name."""
        self.on_the_way: frozenset[Id] = frozenset()
        """Queues and groups that no cell has at this moment."""
        self._partitions: dict[PartitionId, int] = {}
        """Cells of partitions that were looked up because a queue had moved."""

    def cell(self, id: Id) -> int:
        """Return the cell of an id from memory. It may be out of date."""
        if isinstance(id, PartitionId):
            return self._partitions.get(id, id.cell)
        return self.moved.get(id, cell_of(abs(id)))

    async def locate(self, value: Any) -> int:
        """Return the cell of the queue, group or partition that a value names."""
        id = id_named(value)
        if isinstance(id, PartitionId) and self.moved and id not in self._partitions:
            return await self._find(id)
        return self.cell(id)

    async def _find(self, id: PartitionId) -> int:
        """Ask the cells for a partition, beginning with the one that it names."""
        down: StoreUnavailable | OutcomeUnknown | None = None
        for link in sorted(self.links.values(), key=lambda link: link.cell != id.cell):
            try:
                if await link.call("queues", "partition", (id,), {}) is None:
                    continue
            except (StoreUnavailable, OutcomeUnknown) as error:
                down = error
                continue
            if len(self._partitions) >= _PARTITIONS_MAX:
                self._partitions.clear()
            self._partitions[id] = link.cell
            return link.cell
        if down is not None:
            raise down
        return id.cell

    async def refresh(self) -> None:
        """Read which queues were moved, and forget where partitions were."""
        moved, on_the_way = await self.directory.moved()
        if (moved, on_the_way) != (self.moved, self.on_the_way):
            self._partitions.clear()
        self.moved, self.on_the_way = moved, on_the_way

    async def moved_from(self, values: Sequence[Any], cells: Sequence[int], *, wait: bool = True) -> list[bool | None]:
        """Compare the cells of values with `cells`. Returns True for each value that moved, and None during its move.

        Raises QueueElsewhere if a move is in progress and `wait` is set.
        """
        try:
            await self.refresh()
        except (StoreUnavailable, OutcomeUnknown):  # as far as it is known
            return [False] * len(values)
        found: list[bool | None] = []
        for value, cell in zip(values, cells, strict=True):
            on_the_way = id_named(value) in self.on_the_way
            if on_the_way and wait:
                raise QueueElsewhere("the queue is being moved to another cell; try again")
            found.append(None if on_the_way else await self.locate(value) != cell)
        return found

    async def link(self, cell: int) -> CellLink:
        """Return the link to a cell. An unknown cell is looked up, and its ids are known to none: the home says so."""
        if cell not in self.links and monotonic() > self._looked_at + LOOK_SECONDS:
            self._looked_at = monotonic()
            await self.reload()
        return self.links.get(cell, self.home)

    async def knows(self, cell: int) -> bool:
        """Return True if the cell exists."""
        return (await self.link(cell)).cell == cell

    async def at(self, cell: int, family: str, verb: str, *args: Any, **named: Any) -> Any:
        return await (await self.link(cell)).call(family, verb, args, named)

    async def everywhere(
        self, family: str, verb: str, args: Arguments, named: Named, *, partly: bool = False
    ) -> list[Any]:
        """Call every cell and return the answers, beginning with the home's.

        With `partly`, cells that are unavailable are left out, unless all are.
        """
        calls = [link.call(family, verb, args, named) for _, link in sorted(self.links.items())]
        return _answers(await asyncio.gather(*calls, return_exceptions=True), partly=partly)

    async def read(self, family: str, verb: str, args: Arguments, named: Named) -> list[Any]:
        """Call every cell and return the answers. Skips cells that are down, unless all are."""
        calls = [link.read(family, verb, args, named) for _, link in sorted(self.links.items())]
        return _read(await asyncio.gather(*calls, return_exceptions=True))

    async def read_split(
        self, family: str, verb: str, items: Sequence[Any], args: Arguments, named: Named
    ) -> list[Any]:
        """Call each cell with its items and return the answers. Cells that are down are left out, unless all are."""
        by_cell: dict[int, list[Any]] = {}
        for item in items:
            by_cell.setdefault(await self.locate(item), []).append(item)
        links = [(await self.link(cell), some) for cell, some in by_cell.items()]
        calls = [link.read(family, verb, (some, *args), named) for link, some in links]
        return _read(await asyncio.gather(*calls, return_exceptions=True))

    async def split(
        self, family: str, verb: str, items: Sequence[Any], args: Arguments, named: Named
    ) -> list[tuple[list[int], Any]]:
        """Call each cell with its items. Returns the indexes of the items with each answer, which may be an error."""
        by_cell: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            by_cell.setdefault(await self.locate(item), []).append(index)
        if len(by_cell) < 2:
            [cell] = by_cell or [0]
            return [([*range(len(items))], await self.at(cell, family, verb, items, *args, **named))]
        parts = [(cell, [items[index] for index in indexes]) for cell, indexes in by_cell.items()]
        calls = [self.at(cell, family, verb, some, *args, **named) for cell, some in parts]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return list(zip(by_cell.values(), found, strict=True))


def _answers(found: Sequence[Any], *, partly: bool) -> list[Any]:
    """Return the answers among results of `gather`. Raises the first error that is not to be left out."""
    errors = [one for one in found if isinstance(one, BaseException)]
    answers = [one for one in found if not isinstance(one, BaseException)]
    for error in errors:
        if not (partly and answers and isinstance(error, StoreUnavailable | OutcomeUnknown)):
            raise error
    return answers


def _read(found: Sequence[Any]) -> list[Any]:
    answers = [one for one in found if not isinstance(one, CellDown)]
    return _answers(answers or found, partly=False)


# Each of these makes a verb of a family out of the same verb of each cell.


def by(position: int = 0, *, group: bool = False) -> Route:
    """Route to the cell that the argument at this position names. A number is the id of a queue, or of a `group`."""

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        value = args[position] if len(args) > position else [*named.values()][position - len(args)]
        return await router.at(await router.locate(-value if group else value), family, verb, *args, **named)

    return route


def found_again(position: int = 0, *, group: bool = False) -> Route:
    """Route like `by`. If nothing is found, try once more, because the queue may have just moved."""

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        value = -args[position] if group else args[position]
        cell = await router.locate(value)
        found = await router.at(cell, family, verb, *args, **named)
        if not found and (await router.moved_from([value], [cell]))[0]:
            return await router.at(await router.locate(value), family, verb, *args, **named)
        return found

    return route


def each_found_again(route: Route, is_missing: Callable[[Any], bool], waiting: Callable[[], Any] | None) -> Route:
    """Retry the items that a route did not find, if their queue has moved.

    Items of a queue whose move is in progress get `waiting` as the answer, or raise QueueElsewhere.
    """

    async def asking(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        items, *rest = args
        cells = [await router.locate(item) for item in items] if router.moved else None
        results = list(await route(router, family, verb, args, named))
        missing = [index for index, result in enumerate(results) if is_missing(result)]
        if not missing:
            return results
        some = [items[index] for index in missing]
        where = list(map(cell_named, some)) if cells is None else [cells[index] for index in missing]
        changed = await router.moved_from(some, where, wait=waiting is None)
        again = [index for index, there in zip(missing, changed, strict=True) if there]
        for index, there in zip(missing, changed, strict=True):
            if there is None and waiting is not None:
                results[index] = waiting()
        if again:
            found = await route(router, family, verb, ([items[index] for index in again], *rest), named)
            for index, result in zip(again, found, strict=True):
                results[index] = result
        return results

    return asking


async def at_home(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Route to the home."""
    return await router.home.call(family, verb, args, named)


def in_order(unavailable: Callable[[], Any] | None = None) -> Route:
    """Split the list that is the first argument, and return the answers in its order.

    If some cells answered, items of an unavailable cell where nothing was done get `unavailable` as the answer.
    """

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        parts = await router.split(family, verb, args[0], args[1:], named)
        answered = any(not isinstance(found, BaseException) for _, found in parts)
        results: list[Any] = [None] * len(args[0])
        for indexes, found in parts:
            if isinstance(found, BaseException):
                if not (answered and unavailable is not None and isinstance(found, StoreUnavailable)):
                    raise found
                found = [unavailable() for _ in indexes]
            for index, one in zip(indexes, found, strict=True):
                results[index] = one
        return results

    return route


def split_and(merge: Callable[[list[Any]], Any]) -> Route:
    """Split the list that is the first argument of a verb that only reads, and merge the answers.

    Cells that are down are left out, unless all of these are.
    """

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        items, rest = (args[0], args[1:]) if args else (named.pop(next(iter(named))), ())
        return merge(await router.read_split(family, verb, items, rest, named))

    return route


def read_and(merge: Callable[[list[Any]], Any]) -> Route:
    """Call every cell with a verb that only reads, and merge the answers. Cells that are down are left out."""

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        return merge(await router.read(family, verb, args, named))

    return route


async def first_found(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Return the first answer that is not None or False, over all cells."""
    calls = [link.read(family, verb, args, named) for _, link in sorted(router.links.items())]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    return (
        next((one for one in answers if one and not isinstance(one, BaseException)), None)
        or _answers(answers, partly=False)[0]
    )


def everywhere_and(merge: Callable[[list[Any]], Any], *, partly: bool = False) -> Route:
    """Call every cell and merge the answers."""

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        return merge(await router.everywhere(family, verb, args, named, partly=partly))

    return route


def sorted_by(key: Callable[[Any], Any], route: Callable[[Callable[[list[Any]], Any]], Route]) -> Route:
    """Sort the concatenated answers of a route, and cut them to `limit` if there is one."""

    async def sorting(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        found = await route(concatenated)(router, family, verb, args, dict(named))
        return sorted(found, key=key)[: named.get("limit")]

    return sorting


def concatenated(answers: list[Any]) -> list[Any]:
    return [one for answer in answers for one in answer]


Route = Callable[[CellRouter, str, str, Arguments, Named], Any]


class RoutedFamily:
    """A family of the store whose verbs are routed."""

    def __init__(self, router: CellRouter, name: str, routes: dict[str, Route] | None) -> None:
        """Create the family. None as routes means that all of it is in the home."""
        self._router = router
        self._name = name
        self._routes = routes

    def __getattr__(self, verb: str) -> Any:
        fact = getattr(getattr(self._router.home.store, self._name), verb)
        if not callable(fact):
            return fact
        route = at_home if self._routes is None else self._routes.get(verb)
        if route is None:
            raise AttributeError(f"the verb {self._name}.{verb} has no route")

        def call(*args: Any, **named: Any) -> Any:
            return route(self._router, self._name, verb, args, named)

        self.__dict__[verb] = call  # looked up once
        return call
