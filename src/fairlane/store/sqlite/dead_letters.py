"""Dead letters: messages given up on."""

from __future__ import annotations

import re
from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from fairlane.errors import QueueFull
from fairlane.model.idempotency import replay_headers
from fairlane.model.ids import PartitionId, id_key, uuid7, uuid7_ms
from fairlane.model.message import PushItem
from fairlane.model.outcome import DeadLetter
from fairlane.model.segment import pack, unpack
from fairlane.store import forwarding, statements
from fairlane.store.codec import Codec
from fairlane.store.contract.operations import Enqueued, EnqueueResult
from fairlane.store.contract.replay import replay_operation
from fairlane.store.contract.values import (
    NO_ID_TIME,
    Appended,
    DeadFilter,
    Full,
    OperationsAhead,
    PushResult,
    Slice,
    Stored,
)
from fairlane.store.families.queues import Queues
from fairlane.store.forwarding import AGAIN_SECONDS, Forwarding, Pending, decode_history
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.groups import SQL as QUEUES
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.operations import enqueue
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.rows import first, rows

_ID = re.compile(r"0-(\d{1,18})-(\d{1,18})-(\d{1,18})", re.ASCII)
_SQL = statements.load("fairlane.store.sqlite", "dead_letters.sql")
_NEWEST = "\n".join((_SQL["letters"], _SQL["matching"], _SQL["newest_first"]))
_OLDEST = "\n".join((_SQL["letters"], _SQL["matching"], _SQL["oldest_first"]))
_COUNT = "\n".join((_SQL["count"], _SQL["matching"]))


class DeadLetters:
    def __init__(self, database: Database, queues: Queues) -> None:
        self._database = database
        self._queues = queues

    async def list(
        self, queue_id: int, where: DeadFilter, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> List[DeadLetter]:
        failed_at, id = before or (None, None)
        values = _values(queue_id, where) | {"limit": limit, "before_at": failed_at, "before_id": id}
        letters = await self._database.read(lambda db, now: _letters(db, _NEWEST, values))
        return await self._database.codec.open_letters(letters)

    async def get(self, queue_id: int, id: str) -> DeadLetter | None:
        key = _parse(id)
        if key is None:
            return None

        def work(db: apsw.Connection, now: int) -> List[DeadLetter]:
            return [_letter(*row) for row in rows(db, _SQL["get"], queue_id, *key)]

        found = await self._database.codec.open_letters(await self._database.read(work))
        return found[0] if found else None

    async def count(self, queue_id: int, where: DeadFilter) -> int:
        def work(db: apsw.Connection, now: int) -> int:
            count: Any = db.execute(_COUNT, _values(queue_id, where)).fetchall()[0][0]
            return int(count)

        return await self._database.read(work)

    async def replay(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> List[tuple[str, str]]:
        if where.replayed:
            return []  # what was replayed is not replayed again
        where = msgspec.structs.replace(where, replayed=False)
        codec, chosen = self._database.codec, (queue_id, where, limit)
        return await codec.replay(
            queue_id, lambda: self._database.write(lambda db, now: _replay(db, now, chosen, codec))
        )

    async def forward(self, *, limit: int = 100) -> Appended:
        def work(db: apsw.Connection, now: int) -> List[Pending]:
            found = rows(db, _SQL["pending"], now, limit)
            return [Pending(_letter(*letter), tenant, target) for tenant, target, *letter in found]

        return await forwarding.forward(
            await self._database.read(work),
            self._queues,
            self._database.codec,
            append=lambda outgoing: self._database.write(
                lambda db, now: _forward(db, now, outgoing, self._database.codec)
            ),
            postpone=self._postpone,
        )

    async def _postpone(self, letters: Sequence[DeadLetter], seconds: int | None) -> None:
        await self._database.write(lambda db, now: _postpone(db, now, letters, seconds))

    async def purge(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> int:
        def work(db: apsw.Connection, now: int) -> int:
            letters = _letters(db, _OLDEST, _values(queue_id, where) | {"limit": limit})
            db.executemany(_SQL["delete"], map(_key, letters))
            return len(letters)

        return await self._database.write(work)


def _replay(db: apsw.Connection, now: int, chosen: tuple[int, DeadFilter, int], codec: Codec) -> List[tuple[str, str]]:
    queue_id, where, limit = chosen
    letters = _letters(db, _OLDEST, _values(queue_id, where) | {"limit": limit})
    if not letters:
        return []
    options = parse_options(first(db, QUEUES["options_and_depth"], queue_id)[0])
    slices: dict[PartitionId, Slice] = {}
    replayed = []
    for letter in letters:
        if letter.partition not in slices:
            slices[letter.partition] = Slice(letter.partition, queue_id, options, [], [], [], [], [])
        replayed.append((letter.id, _add(slices[letter.partition], letter, codec)))
    for slice, pushed in zip(slices.values(), push(db, now, list(slices.values())), strict=True):
        result: PushResult | EnqueueResult = pushed
        if isinstance(pushed, OperationsAhead):
            tenant, name, partition = first(db, _SQL["names"], slice.partition.id)
            result = enqueue(db, now, replay_operation(slice, tenant, name, partition, codec))
        if isinstance(result, Full):
            # Raised, so that what the other partitions got is taken back.
            raise QueueFull(
                f"the queue has {result.depth} of {result.capacity} messages; the replay does not fit",
                depth=result.depth,
                capacity=result.capacity,
            )
        assert isinstance(result, Stored | Enqueued)
    marks = [(now, new_id, *_key(letter)) for letter, (_, new_id) in zip(letters, replayed, strict=True)]
    db.executemany(_SQL["replayed"], marks)
    return replayed


def _forward(db: apsw.Connection, now: int, outgoing: Forwarding, codec: Codec) -> int:
    slices = outgoing.slices()
    free = {one.id for one in outgoing.letters if first(db, _SQL["still_pending"], *_key(one), now)}
    placed = outgoing.fill(slices, free, codec)
    filled = [part for part in slices if part.fragments]
    results = _push_beyond(db, now, filled)
    done = [part for part, result in zip(filled, results, strict=True) if isinstance(result, Stored)]
    refused = [part for part in filled if part not in done]
    for some, seconds in ((done, None), (refused, AGAIN_SECONDS)):
        _postpone(db, now, [letter for part in some for letter in placed[part.partition]], seconds)
    return sum(len(part.fragments) for part in done)


def _push_beyond(db: apsw.Connection, now: int, slices: Sequence[Slice]) -> List[PushResult]:
    """Push to one queue, whether it is full or not."""
    queue = first(db, QUEUES["options_and_depth"], slices[0].queue_id) if slices else None
    if queue is None or not parse_options(queue[0]).max_size:
        return push(db, now, slices)
    depth, queue_id = queue[1], slices[0].queue_id
    db.execute(_SQL["make_room"], (-sum(len(part.fragments) for part in slices), queue_id))
    results = push(db, now, slices)
    stored = sum(
        len(part.fragments) for part, result in zip(slices, results, strict=True) if isinstance(result, Stored)
    )
    db.execute(_SQL["make_room"], (depth + stored, queue_id))
    return results


def _postpone(db: apsw.Connection, now: int, letters: Sequence[DeadLetter], seconds: int | None) -> None:
    """For so many seconds; without them they wait no more."""
    at = None if seconds is None else now + seconds * 1_000_000
    db.executemany(_SQL["postpone"], [(at, *_key(letter)) for letter in letters])


def _add(slice: Slice, letter: DeadLetter, codec: Codec) -> str:
    """Put the letter's message into the slice as a new one; its id."""
    clear = codec.open_message(letter.partition, letter.message)
    old = unpack(clear, position=letter.position, created_at=letter.message_created_at)
    headers = replay_headers(old.transaction_id, old.headers)
    new_id = uuid7()
    item = PushItem(queue=letter.queue, payload=old.raw, trace_id=old.trace_id, type=old.type, headers=headers)
    fragment = pack(new_id, new_id, item)
    slice.fragments.append(codec.replayed(slice, fragment))
    slice.transaction_ids.append(new_id)
    slice.keys.append(id_key(new_id))
    made_at = uuid7_ms(new_id)
    slice.id_times.append(NO_ID_TIME if made_at is None else made_at)
    slice.given.append(False)
    return new_id


def _values(queue_id: int, where: DeadFilter) -> dict[str, Any]:
    """The bindings of `matching`. No letter has the partition id 0, which stands for one of another store."""
    partition = where.partition
    return {
        "queue_id": queue_id,
        "group": where.group,
        "partition_id": None if partition is None else 0 if partition.shard else partition.id,
        "ids": None if where.ids is None else msgspec.json.encode(where.ids).decode(),
        "failed_from": where.failed_from,
        "failed_until": where.failed_until,
        "replayed": where.replayed,
        "error": where.error,
    }


def _parse(id: str) -> tuple[int, int, int] | None:
    match = _ID.fullmatch(id)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _key(letter: DeadLetter) -> tuple[int, int, int]:
    return letter.partition.id, letter.group_id, letter.position


def _letters(db: apsw.Connection, sql: str, values: dict[str, Any]) -> List[DeadLetter]:
    return [_letter(*row) for row in db.execute(sql, values).fetchall()]


def _letter(partition_id: Any, *rest: Any) -> DeadLetter:
    *values, history = rest
    fields = dict(zip(DeadLetter.__struct_fields__[1:-1], values, strict=True))
    return DeadLetter(partition=PartitionId(0, partition_id), history=decode_history(history), **fields)
