"""Messages given up on."""

from __future__ import annotations

import re
from builtins import list as List  # the family has a verb of that name
from typing import Any

import apsw
import msgspec

from fairlane.errors import LaneWaiting, QueueFull
from fairlane.model.ids import PartitionId, id_key, uuid7, uuid7_ms
from fairlane.model.message import PushItem
from fairlane.model.outcome import DeadLetter
from fairlane.model.segment import pack, unpack
from fairlane.store import statements
from fairlane.store.sealed.vault import Vault
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.rows import first
from fairlane.store.sqlite.seeding import QUEUES
from fairlane.store.values import NO_ID_TIME, Behind, DeadFilter, Full, Slice, Stored

REPLAY_OF = "replay-of"
_ID = re.compile(r"0-(\d{1,18})-(\d{1,18})-(\d{1,18})", re.ASCII)
_SQL = statements.load("fairlane.store.sqlite", "dead_letters.sql")
_NEWEST = "\n".join((_SQL["letters"], _SQL["matching"], _SQL["newest_first"]))
_OLDEST = "\n".join((_SQL["letters"], _SQL["matching"], _SQL["oldest_first"]))
_COUNT = "\n".join((_SQL["count"], _SQL["matching"]))


class DeadLetters:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.vault: Vault | None = None

    async def list(
        self, queue_id: int, where: DeadFilter, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> List[DeadLetter]:
        failed_at, id = before or (None, None)
        values = _values(queue_id, where) | {"limit": limit, "before_at": failed_at, "before_id": id}
        return await self._database.read(lambda db, now: _letters(db, _NEWEST, values))

    async def get(self, queue_id: int, id: str) -> DeadLetter | None:
        key = _parse(id)
        if key is None:
            return None

        def work(db: apsw.Connection, now: int) -> DeadLetter | None:
            row = first(db, _SQL["get"], queue_id, *key)
            return _letter(*row) if row else None

        return await self._database.read(work)

    async def count(self, queue_id: int, where: DeadFilter) -> int:
        def work(db: apsw.Connection, now: int) -> int:
            count: Any = db.execute(_COUNT, _values(queue_id, where)).fetchall()[0][0]
            return int(count)

        return await self._database.read(work)

    async def replay(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> List[tuple[str, str]]:
        if where.replayed:
            return []  # what was replayed is not replayed again
        where = msgspec.structs.replace(where, replayed=False)
        answer = await self._database.write(lambda db, now: _replay(db, now, (queue_id, where, limit), self.vault))
        if isinstance(answer, Full):
            raise QueueFull(
                f"the queue has {answer.depth} of {answer.capacity} messages; the replay does not fit",
                depth=answer.depth,
                capacity=answer.capacity,
            )
        return answer

    async def purge(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> int:
        def work(db: apsw.Connection, now: int) -> int:
            letters = _letters(db, _OLDEST, _values(queue_id, where) | {"limit": limit})
            db.executemany(_SQL["delete"], map(_key, letters))
            return len(letters)

        return await self._database.write(work)


def _replay(
    db: apsw.Connection, now: int, chosen: tuple[int, DeadFilter, int], vault: Vault | None
) -> List[tuple[str, str]] | Full:
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
        replayed.append((letter.id, _add(slices[letter.partition], letter, vault)))
    for result in push(db, now, list(slices.values())):
        if isinstance(result, Full):
            return result
        if isinstance(result, Behind):  # raised, so that what the other partitions got is taken back
            raise LaneWaiting("operations wait in a partition of these dead letters; try again when they are done")
        assert isinstance(result, Stored)
    marks = [(now, new_id, *_key(letter)) for letter, (_, new_id) in zip(letters, replayed, strict=True)]
    db.executemany(_SQL["replayed"], marks)
    return replayed


def _add(slice: Slice, letter: DeadLetter, vault: Vault | None) -> str:
    """Put the letter's message into the slice as a new one; its id."""
    clear = vault.open(letter.partition, letter.message) if vault else letter.message
    old = unpack(clear, position=letter.position, created_at=letter.message_created_at)
    headers = {**(old.headers or {}), REPLAY_OF: old.transaction_id}
    new_id = uuid7()
    item = PushItem(queue=letter.queue, payload=old.data, trace_id=old.trace_id, type=old.type, headers=headers)
    fragment = pack(new_id, new_id, item)
    if vault and vault.is_prepared(slice.queue_id):
        fragment = vault.seal(slice.queue_id, slice.partition, fragment)
    slice.fragments.append(fragment)
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
    }


def _parse(id: str) -> tuple[int, int, int] | None:
    match = _ID.fullmatch(id)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _key(letter: DeadLetter) -> tuple[int, int, int]:
    return letter.partition.id, letter.group_id, letter.position


def _letters(db: apsw.Connection, sql: str, values: dict[str, Any]) -> List[DeadLetter]:
    return [_letter(*row) for row in db.execute(sql, values).fetchall()]


def _letter(partition_id: Any, *rest: Any) -> DeadLetter:
    names = DeadLetter.__struct_fields__[1:]
    return DeadLetter(partition=PartitionId(0, partition_id), **dict(zip(names, rest, strict=True)))
