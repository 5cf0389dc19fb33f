"""The router: sends each call to the cell that its ids name, or to several cells, and merges their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

from fairlane.errors import OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import PartitionId, cell_of
from fairlane.store.cells.directory import Directory
from fairlane.store.cells.link import CellDown, Link

LOOK_SECONDS = 1.0
"""Least time between two looks for an unknown cell."""
Arguments = tuple[Any, ...]
Named = dict[str, Any]
_NAMING = ("queue_id", "partition", "claim", "lease", "id")
"""Fields by which a value names its cell, the first that it has."""


def cell_named(value: Any) -> int:
    """Return the cell that an id, or a value with an id, names."""
    if isinstance(value, int):
        return cell_of(value)
    if isinstance(value, PartitionId):
        return value.cell
    if isinstance(value, tuple):  # also the id of a lease, which begins with its group
        return cell_named(value[0])
    return cell_named(next(getattr(value, name) for name in _NAMING if hasattr(value, name)))


class CellRouter:
    """The links to all cells, and ways to call several of them."""

    def __init__(
        self,
        home: Link,
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
        self.links: dict[int, Link] = {0: home}
        self.versions: dict[int, dict[int, int]] = {}
        """The versions of each cell's catalogue, by the version that was returned for all of them."""
        self._looked_at = 0.0

    async def link(self, cell: int) -> Link:
        """Return the link to a cell. An unknown cell is looked up, and its ids are known to none: the home says so."""
        if cell not in self.links and monotonic() > self._looked_at + LOOK_SECONDS:
            self._looked_at = monotonic()
            await self.reload()
        return self.links.get(cell, self.home)

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
        """Call every cell and return the answers. Cells that are down are left out, unless all are."""
        calls = [link.read(family, verb, args, named) for _, link in sorted(self.links.items())]
        return _read(await asyncio.gather(*calls, return_exceptions=True))

    async def read_split(
        self, family: str, verb: str, items: Sequence[Any], args: Arguments, named: Named
    ) -> list[Any]:
        """Call each cell with its items and return the answers. Cells that are down are left out, unless all are."""
        by_cell: dict[int, list[Any]] = {}
        for item in items:
            by_cell.setdefault(cell_named(item), []).append(item)
        links = [(await self.link(cell), some) for cell, some in by_cell.items()]
        calls = [link.read(family, verb, (some, *args), named) for link, some in links]
        return _read(await asyncio.gather(*calls, return_exceptions=True))

    async def split(
        self, family: str, verb: str, items: Sequence[Any], args: Arguments, named: Named
    ) -> list[tuple[list[int], Any]]:
        """Call each cell with its items. Returns the indexes of the items with each answer, which may be an error."""
        by_cell: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            by_cell.setdefault(cell_named(item), []).append(index)
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


def by(position: int = 0) -> Route:
    """Route to the cell that the argument at this position names."""

    async def route(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
        value = args[position] if len(args) > position else [*named.values()][position - len(args)]
        return await (await router.link(cell_named(value))).call(family, verb, args, named)

    return route


async def at_home(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Route to the home."""
    return await router.home.call(family, verb, args, named)


def in_order(unavailable: Callable[[], Any] | None = None) -> Route:
    """Split the list that is the first argument, and return the answers in its order.

    Items of a cell that is unavailable are answered with `unavailable`, if nothing was done and others were answered.
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
    """Return the answer of the cell that has it. None or False is the answer only if every cell says so."""
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
