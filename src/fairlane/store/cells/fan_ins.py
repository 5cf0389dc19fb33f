"""Fan-ins over several cells. A fan-in is in the cell of its messages, and the queue of its callback is in the same."""

from __future__ import annotations

from typing import Any

from fairlane.errors import OutcomeUnknown, SealError, StoreUnavailable
from fairlane.store.cells.cross_cell import only_cell
from fairlane.store.cells.router import Arguments, CellRouter, Named, concatenated


async def commit(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Store fan-ins in the cell of their messages. Raises TransactionSpansCells if a callback is for another cell."""
    made, _, acks, slices, *scheduled = args
    pushed = [*slices, *(part.slice for parts in scheduled for part in parts)]
    cell = await only_cell(router, acks, pushed, [one.queue.id for one in made])
    return await router.at(cell, family, verb, *args, **named)


async def end(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """End a fan-in in the cell of its callback, which is its own."""
    key, acks, slices = args
    return await router.at(await only_cell(router, acks, slices), family, verb, key, acks, slices, **named)


async def callback(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    """Return the callback of a fan-in, from a cell that has the key which sealed it."""
    down: StoreUnavailable | OutcomeUnknown | None = None
    for _, link in sorted(router.links.items())[:0:-1]:
        try:
            return await link.call(family, verb, args, named)
        except SealError:
            continue
        except (StoreUnavailable, OutcomeUnknown) as error:
            down = error
    try:
        return await router.home.call(family, verb, args, named)
    except SealError:
        if down is not None:
            raise down from None
        raise


async def result(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> Any:
    [part] = args
    return await router.at(await router.locate(part.partition_id), family, verb, part, **named)


async def settle(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> list[str]:
    [partitions] = args
    if partitions is None:
        answers = await router.everywhere(family, verb, args, named, partly=True)
    else:
        answers = [found for _, found in await router.split(family, verb, partitions, (), named)]
        for found in answers:
            if isinstance(found, BaseException):
                raise found
    return [id for answer in answers for id in answer]


async def newest(router: CellRouter, family: str, verb: str, args: Arguments, named: Named) -> list[Any]:
    found = concatenated(await router.read(family, verb, args, named))
    return sorted(found, key=lambda one: one.id, reverse=True)[: named["limit"]]
