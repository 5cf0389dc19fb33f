"""Export of queues as lines of JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from time import time_ns
from typing import Any

import msgspec

from fairlane.errors import InvalidRequest, SealError, StoreUnavailable
from fairlane.model.ids import id_key
from fairlane.model.segment import Segment, ids_of, ids_only
from fairlane.store.codec import SEALED_DATA, key_of
from fairlane.store.exchange.export_format import END, FORMAT, HEADER, KINDS, MESSAGE, Names, line_of
from fairlane.store.exchange.snapshot import QUEUE_TABLES, STORE_TABLES, Snapshot

Progress = Callable[[str, int, int], None]
"""Function that is called with the step, the rows done and the rows of the step."""
_SECRETS = ("hash", "old_hash", "old_until")


async def export(snapshot: Snapshot, queues: Sequence[str], progress: Progress) -> AsyncIterator[bytes]:
    """Yield the lines of these queues. Without queues, yield the whole store.

    Raises InvalidRequest if a queue does not exist, and SealError if it is encrypted.
    """
    tenants = {row["id"]: row["name"] async for row in snapshot.rows("tenants")}
    found = [row async for row in snapshot.rows("queues")]
    chosen = [row for row in found if not queues or row["name"] in queues]
    if missing := set(queues) - {row["name"] for row in chosen}:
        raise InvalidRequest(f"queue {sorted(missing)[0]!r} does not exist in this store")
    yield line_of(HEADER, {"format": FORMAT, "made_at": time_ns() // 1000})
    count = 1
    for table in () if queues else STORE_TABLES:
        async for row in snapshot.rows(table):
            hidden = ("id", *_SECRETS) if table == "api_keys" else ("id",)
            shown = {name: value for name, value in row.items() if name not in hidden}
            yield line_of(KINDS[table], shown)
            count += 1
    for queue in chosen:
        async for line in _Queue(snapshot, queue, tenants[queue["tenant_id"]], progress).lines():
            yield line
            count += 1
    yield line_of(END, {"lines": count})


class _Queue:
    """The export of one queue."""

    def __init__(self, snapshot: Snapshot, queue: dict[str, Any], tenant: str, progress: Progress) -> None:
        self._snapshot = snapshot
        self._queue = queue
        self._tenant = tenant
        self._progress = progress
        self._names: dict[str, dict[int, str]] = {"groups": {}, "partitions": {}}
        self._exported = 0
        self._deleted: dict[int, set[int]] = defaultdict(set)
        """Positions of messages that were deleted one by one, by partition."""

    async def lines(self) -> AsyncIterator[bytes]:
        self._check(self._queue["options"])
        for table in QUEUE_TABLES:
            async for row in self._snapshot.rows(table, self._queue["id"]):
                if table in self._names:
                    self._names[table][row["id"]] = row["name"]
                    _check_finished(self._queue["name"], row)
                if table == "skips" and not row["group_id"]:
                    self._deleted[row["partition_id"]].add(row["position"])
                if row.get("group_id") and row["group_id"] not in self._names["groups"]:
                    continue  # of a group that was deleted
                if table == "segments":
                    for line in self._messages(row):
                        yield line
                else:
                    yield self._line(table, row)

    def _line(self, table: str, row: dict[str, Any]) -> bytes:
        names = self._place(row)
        if table == "groups":
            names = msgspec.structs.replace(names, group=row["name"])
        elif table == "partitions":
            names = msgspec.structs.replace(names, partition=row["name"])
        for value in row.values():
            if isinstance(value, bytes):
                self._check_clear(value)
        keeps_id = table.startswith("scheduled_")
        shown = {name: value for name, value in row.items() if name != "id" or keeps_id}
        return line_of(KINDS[table], shown, names)

    def _place(self, row: dict[str, Any]) -> Names:
        partition = self._names["partitions"].get(row.get("partition_id", 0))
        group = self._names["groups"].get(row.get("group_id", 0))
        return Names(self._tenant, self._queue["name"], partition, group)

    def _messages(self, row: dict[str, Any]) -> list[bytes]:
        ends: list[int] = msgspec.json.decode(row["ends"])
        segment = Segment(row["first_pos"], row["created_at"], ends, row["body"], row["checksum"])
        names = self._place(row)
        deleted = self._deleted[row["partition_id"]]
        keys = [int.from_bytes(row["keys"][at : at + 8], "big", signed=True) for at in range(0, len(row["keys"]), 8)]
        found = []
        for index, fragment in enumerate(segment.fragments(segment.first, segment.first + len(ends))):
            position = segment.first + index
            self._check_clear(fragment)
            stored = ids_only(fragment) if position in deleted else fragment
            facts: dict[str, Any] = {"position": position, "created_at": segment.created_at}
            if keys[index] != id_key(ids_of(fragment)[1]):
                facts["key"] = keys[index]
            found.append(line_of(MESSAGE, {**facts, "message": stored}, names))
        self._exported += len(found)
        self._progress(f"{self._exported:,} messages of {self._queue['name']} exported", self._exported, 0)
        return found

    def _check_clear(self, data: bytes) -> None:
        """Raise SealError if this is the data of an encrypted message."""
        if data.startswith(SEALED_DATA) or (data.endswith(b'"') and key_of(data) is not None):
            raise SealError(f"queue {self._queue['name']!r} has encrypted messages, which an export cannot hold")

    def _check(self, options: str) -> None:
        if msgspec.json.decode(options).get("encryption_enabled"):
            raise SealError(
                f"queue {self._queue['name']!r} is encrypted, and an export would hold its messages in clear; move it "
                "with `fairlane migrate`, or back up the store"
            )


def _check_finished(queue: str, row: dict[str, Any]) -> None:
    if row.get("open_operations") or row.get("seed_after") is not None:
        raise StoreUnavailable(
            f"queue {queue!r} has accepted pushes or a new group that is not complete yet; try again"
        )
