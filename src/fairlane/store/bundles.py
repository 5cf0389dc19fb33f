"""Scheduled messages on their way into a store and out of it: those of one partition travel and are kept together, in
the order in which they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, Generic, TypeVar

import msgspec

from fairlane.model.ids import id_facts
from fairlane.model.limits import SEGMENT_BYTES_MAX
from fairlane.model.segment import ids_of
from fairlane.store.firing import Due
from fairlane.store.values import NO_ID_TIME, WAITS, Duplicate, Scheduled, Slice

MESSAGES_MAX: Final = 100
"""Of one bundle: each time some of it are due, its times are read."""
FIRE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Appended in one step, whatever its limit: memory does not grow with what is due."""
Id = TypeVar("Id")


class Bundle(msgspec.Struct):
    """Some messages of a slice: `items` are their indexes there."""

    relative: bool
    """`due` counts from now."""
    items: list[int]
    due: list[int]


def bundles_of(part: Scheduled) -> Iterator[Bundle]:
    """The messages of a part, in the order they are due. Those of one time keep their order; what has a time and what
    has a delay is put together apart, for only the store knows how they compare."""
    due_at = part.due_at
    timed = [index for index, at in enumerate(due_at) if at is not None]
    yield from _cut(part, False, timed, [at for at in due_at if at is not None])
    if len(timed) < len(due_at):
        delayed = [index for index, at in enumerate(due_at) if at is None]
        yield from _cut(part, True, delayed, [part.delay_ms[index] * 1000 for index in delayed])


def twins(part: Slice) -> list[Duplicate]:
    """Messages whose given id another one before them has."""
    if True not in part.given or len(set(part.keys)) == len(part.keys):
        return []
    seen: dict[int, int] = {}
    found = []
    for index, key in enumerate(part.keys):
        if (twin := seen.setdefault(key, index)) != index:
            found.append(Duplicate(index, WAITS, *ids_of(part.fragments[twin])))
    return found


def _cut(part: Scheduled, relative: bool, items: list[int], due: list[int]) -> Iterator[Bundle]:
    order = sorted(range(len(items)), key=due.__getitem__)
    fragments = part.slice.fragments
    if 0 < len(items) <= MESSAGES_MAX and sum(map(len, fragments)) <= SEGMENT_BYTES_MAX:  # mostly
        yield Bundle(relative, [items[one] for one in order], [due[one] for one in order])
        return
    some: list[int] = []
    size = 0
    for number in order:
        length = len(fragments[items[number]])
        if some and (len(some) == MESSAGES_MAX or size + length > SEGMENT_BYTES_MAX):
            yield Bundle(relative, [items[one] for one in some], [due[one] for one in some])
            some, size = [], 0
        some.append(number)
        size += length
    if some:
        yield Bundle(relative, [items[one] for one in some], [due[one] for one in some])


class Opened(msgspec.Struct, Generic[Id]):
    """A bundle of which some messages are due."""

    id: Id
    partition_id: int
    queue_id: int
    partition_name: str
    n: int
    taken: int
    due: list[int]
    """Of those that are due, after the ones that were taken."""
    next_due: int | None
    """Of the one behind them."""
    keys: list[int]
    ends: list[int]
    body: bytes

    def messages(self) -> Iterator[Due]:
        low = 0
        for offset, high in enumerate(self.ends):
            fragment = self.body[low:high]
            message_id, transaction_id = ids_of(fragment)
            id_ms = id_facts(transaction_id)[1]
            yield Due(
                self.due[offset],
                message_id,
                self.id,
                self.taken + offset,
                self.partition_id,
                self.queue_id,
                self.partition_name,
                self.keys[offset],
                NO_ID_TIME if id_ms is None else id_ms,
                transaction_id != message_id,
                transaction_id,
                fragment,
            )
            low = high


def oldest(opened: Sequence[Opened[Id]], cut: int | None) -> list[Due]:
    """What is due in bundles, in that order. Nothing behind `cut`, where a bundle that was not opened begins."""
    messages = [message for bundle in opened for message in bundle.messages() if cut is None or message.due_at <= cut]
    return sorted(messages, key=lambda one: (one.due_at, one.message_id))


class Progress(msgspec.Struct, Generic[Id]):
    """What firing did to a bundle: `gone` messages, from the first that was not taken; the bundle is over, or `next_at`
    is when to look at it again, None after a pause."""

    bundle: Opened[Id]
    gone: int
    next_at: int | None
    holes: list[int]
    """Indexes of further messages that are gone, behind some that are not."""
    keys: list[int]
    """Of all that are gone."""

    @property
    def over(self) -> bool:
        return self.bundle.taken + self.gone + len(self.holes) == self.bundle.n


def progress_of(opened: Sequence[Opened[Id]], done: Sequence[Due], later: Sequence[Due]) -> list[Progress[Id]]:
    gone: dict[object, set[int]] = {}
    for message in done:
        gone.setdefault(message.bundle, set()).add(message.index)
    paused = {message.bundle for message in later}
    found = []
    for bundle in opened:
        indexes = gone.get(bundle.id, set())
        many = 0
        while bundle.taken + many in indexes:
            many += 1
        holes = sorted(index for index in indexes if index >= bundle.taken + many)
        next_at = None if bundle.id in paused else ([*bundle.due, bundle.next_due])[many]
        keys = [bundle.keys[index - bundle.taken] for index in sorted(indexes)]
        found.append(Progress(bundle, many, next_at, holes, keys))
    return found


def ends_of(fragments: Sequence[bytes]) -> list[int]:
    return list(accumulate(map(len, fragments)))
