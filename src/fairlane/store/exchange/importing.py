"""Import of an export: first into an empty scratch store, which checks it, and then into the target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from struct import pack
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from fairlane.errors import Conflict, InvalidRequest
from fairlane.model.ids import id_key
from fairlane.model.limits import SEGMENT_BYTES_MAX
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.segment import Segment, checksum, ids_of
from fairlane.store.exchange.export_format import END, FORMAT, HEADER, MESSAGE, TABLES, Line, read_line, row_of, text
from fairlane.store.exchange.snapshot import QUEUE_TABLES, ImportTarget, Snapshot

Progress = Callable[[str, int, int], None]
"""Function that is called with the step, the rows done and the rows of the step."""
_SEGMENT_MESSAGES: Final = 10_000
_LINES_SHOWN: Final = 1000
"""Number of lines after which the progress is reported."""
_QueueKey = tuple[str, str]
"""A queue: its tenant and its name."""


class Scratch(Snapshot, Protocol):
    """An empty store in a temporary file."""

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table and their types."""
        ...

    def add(self, table: str, row: dict[str, Any]) -> int:
        """Add one row. Returns its id."""
        ...


class Imported(NamedTuple):
    """The result of an import."""

    queues: list[str]
    """Queues that were created."""
    messages: int
    present: list[str]
    """Queues that the store had already, with all their messages."""
    left_out: list[str]
    """Other rows that were not imported, with the reason."""


class ImportReader:
    """Reads lines into the scratch store."""

    def __init__(self, scratch: Scratch, progress: Progress) -> None:
        self._scratch = scratch
        self._progress = progress
        self._ids: dict[tuple[str, ...], int] = {}
        """Ids in the scratch store of tenants, queues, partitions and groups, by their names."""
        self._columns: dict[str, dict[str, str]] = {}
        self._waiting: list[bytes] = []
        self._waiting_keys: list[int] = []
        self._size = 0
        self._head: dict[str, Any] = {}
        self.messages = 0

    def read(self, lines: Iterable[bytes]) -> None:
        """Read a whole export. Raises InvalidRequest if it is damaged, incomplete or of another format."""
        number, ended = 0, False
        for number, raw in enumerate(lines, 1):
            if not number % _LINES_SHOWN:
                self._progress(f"{number:,} lines read", number, 0)
            kind, line = read_line(number, raw)
            if number == 1:
                _check_header(kind, line)
            elif ended:
                raise InvalidRequest(f"line {number} follows the end of the export")
            elif kind == END:
                ended = msgspec.json.decode(line["lines"], type=int) == number - 1
                if not ended:
                    raise InvalidRequest(f"the export lacks lines: it ends at line {number}")
            else:
                try:
                    self._add(kind, line)
                except (KeyError, ValueError, msgspec.MsgspecError) as error:
                    raise InvalidRequest(f"line {number} does not fit its kind {kind!r:.40}: {error}") from None
        self._flush()
        if not ended:
            raise InvalidRequest(f"the export is incomplete: it stops after line {number}, without its end")

    def _add(self, kind: str, line: Line) -> None:
        if kind == MESSAGE:
            self._add_message(line)
            return
        self._flush()
        table = TABLES[kind]
        row = row_of(line, self._typed(table))
        if "queue" in line and table in QUEUE_TABLES:
            self._add_ids(table, row, line)
        elif table == "tenants":
            self._ids[row["name"],] = self._scratch.add(table, row)
            return
        if table == "api_keys":
            row |= {"id": row["name"], "hash": b""}
        id = self._scratch.add(table, row)
        if table in ("queues", "groups", "partitions"):
            self._ids[(table, *_place(line), row["name"])] = id

    def _add_ids(self, table: str, row: dict[str, Any], line: Line) -> None:
        """Add the ids of the names in a line."""
        tenant, queue = place = _place(line)
        columns = self._typed(table)
        if "tenant_id" in columns:
            if (tenant,) not in self._ids:
                self._ids[tenant,] = self._scratch.add("tenants", {"name": tenant})
            row["tenant_id"] = self._ids[tenant,]
        if "tenant" in columns:
            row["tenant"] = tenant
        if "queue_id" in columns:
            row["queue_id"] = self._ids["queues", *place, queue]
        if "partition_id" in columns:
            row["partition_id"] = self._ids["partitions", *place, text(line, "partition") or ""]
        if "group_id" in columns:
            group = text(line, "group")
            row["group_id"] = 0 if group is None else self._ids["groups", *place, group]

    def _add_message(self, line: Line) -> None:
        fragment = bytes(line["message"])[:-1]
        position, created_at = (msgspec.json.decode(line[name], type=int) for name in ("position", "createdAt"))
        partition = self._ids["partitions", *_place(line), text(line, "partition") or ""]
        head = self._head
        if (
            head.get("partition_id") != partition
            or head["created_at"] != created_at
            or head["first_pos"] + len(self._waiting) != position
            or self._size + len(fragment) > SEGMENT_BYTES_MAX
            or len(self._waiting) >= _SEGMENT_MESSAGES
        ):
            self._flush()
            self._head = {"partition_id": partition, "first_pos": position, "created_at": created_at}
        key = line.get("key")
        self._waiting_keys.append(id_key(ids_of(fragment)[1]) if key is None else msgspec.json.decode(key, type=int))
        self._waiting.append(fragment)
        self._size += len(fragment)
        self.messages += 1

    def _flush(self) -> None:
        """Store the messages that wait as a segment."""
        if not self._waiting:
            return
        body = b"".join(self._waiting)
        ends = msgspec.json.encode(list(accumulate(map(len, self._waiting)))).decode()
        keys = pack(f">{len(self._waiting_keys)}q", *self._waiting_keys)
        facts = {"n": len(self._waiting), "checksum": checksum(body), "ends": ends, "keys": keys, "body": body}
        self._scratch.add("segments", self._head | facts)
        self._waiting, self._waiting_keys, self._size, self._head = [], [], 0, {}

    def _typed(self, table: str) -> dict[str, str]:
        if table not in self._columns:
            self._columns[table] = self._scratch.columns(table)
        return self._columns[table]


def _check_header(kind: str, line: Line) -> None:
    if kind != HEADER:
        raise InvalidRequest("this is not an export; `fairlane export` makes one")
    format = msgspec.json.decode(line.get("format", msgspec.Raw(b"0")))
    if format != FORMAT:
        raise InvalidRequest(f"the export has format {format}, and this version reads {FORMAT}; use a newer one")


def _place(line: Line) -> _QueueKey:
    return text(line, "tenant") or DEFAULT_TENANT, text(line, "queue") or ""


class ImportWriter:
    """Adds the rows of a scratch store to a target, under new ids."""

    def __init__(self, scratch: Scratch, target: ImportTarget, progress: Progress) -> None:
        self._scratch = scratch
        self._target = target
        self._progress = progress
        self._ids: dict[str, dict[int, int]] = defaultdict(dict)
        """New ids by the old one, for each table."""

    async def run(self, messages: int) -> Imported:
        """Add everything that the target lacks, and commit after each queue, so that a repeated import continues.

        Raises Conflict, and adds nothing, if the target has a queue with other messages.
        """
        await self._add_tenants()
        tenants = {row["id"]: row["name"] async for row in self._scratch.rows("tenants")}
        existing = {(row["tenant_id"], row["name"]): row["id"] async for row in self._target.rows("queues")}
        missing: list[dict[str, Any]] = []
        present: list[str] = []
        async for queue in self._scratch.rows("queues"):
            there = existing.get((self._ids["tenants"][queue["tenant_id"]], queue["name"]))
            if there is None:
                missing.append(queue)
            else:
                await self._check_present(queue, there)
                present.append(queue["name"])
        for done, queue in enumerate(missing):
            self._progress(f"importing {queue['name']}", done, len(missing))
            await self._add_queue(queue["id"])
            await self._target.commit()
        left_out = [reason async for reason in self._add_others(set(tenants.values()))]
        return Imported([queue["name"] for queue in missing], messages, present, left_out)

    async def _add_tenants(self) -> None:
        there = {row["name"]: row["id"] async for row in self._target.rows("tenants")}
        missing = [row async for row in self._scratch.rows("tenants") if row["name"] not in there]
        for row, id in zip(missing, await self._target.reserve("tenants", len(missing)), strict=True):
            await self._target.insert("tenants", [row | {"id": id}])
            there[row["name"]] = id
        async for row in self._scratch.rows("tenants"):
            self._ids["tenants"][row["id"]] = there[row["name"]]

    async def _add_queue(self, queue_id: int) -> None:
        for table in QUEUE_TABLES:
            rows = [row async for row in self._scratch.rows(table, queue_id)] if table != "segments" else None
            if table in ("queues", "groups", "partitions", "scheduled_segments") and rows:
                news = await self._target.reserve(table, len(rows))
                self._ids[table] |= {row["id"]: new for row, new in zip(rows, news, strict=True)}
            if rows is not None:
                if rows:
                    await self._target.insert(table, [self._renumbered(table, row) for row in rows])
                continue
            batch: list[dict[str, Any]] = []
            async for row in self._scratch.rows(table, queue_id):
                batch.append(self._renumbered(table, row))
                if len(batch) == 100:
                    await self._target.insert(table, batch)
                    batch = []
            if batch:
                await self._target.insert(table, batch)

    def _renumbered(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with the ids of the target."""
        new = dict(row)
        for column, of in _REFERENCES.items():
            if column in new and (new[column] or column != "group_id"):
                new[column] = self._ids[of][new[column]]
        if "id" in new:
            new["id"] = self._ids[_SAME_ID.get(table, table)][new["id"]]
        if table == "partitions":
            new |= {"open_operations": 0, "next_operation": 0}
        return new

    async def _check_present(self, queue: dict[str, Any], there: int) -> None:
        """Raise Conflict unless a queue of the target has every message of the export at its position."""
        names = {row["id"]: row["name"] async for row in self._scratch.rows("partitions", queue["id"])}
        partitions = {row["name"]: row async for row in self._target.rows("partitions", there)}
        stored: dict[int, dict[int, str]] = defaultdict(dict)
        async for row in self._target.rows("segments", there):
            stored[row["partition_id"]] |= dict(_ids(row))
        async for row in self._scratch.rows("segments", queue["id"]):
            partition = partitions.get(names[row["partition_id"]])
            for position, id in _ids(row):
                if partition is None or (
                    position >= partition["start"] and stored[partition["id"]].get(position) != id
                ):
                    raise Conflict(
                        f"queue {queue['name']!r} exists with other messages, and nothing was imported; delete it, or "
                        "import into another store"
                    )

    async def _add_others(self, tenants: set[str]) -> Any:
        """Add schedules and specs that the target lacks. Yields what is left out."""
        there = {(row["tenant"], row["name"]) async for row in self._target.rows("schedules")}
        rows = [row async for row in self._scratch.rows("schedules")]
        new = [row for row in rows if (row["tenant"], row["name"]) not in there]
        if new:
            await self._target.insert("schedules", new)
        with_specs = {row["tenant"] async for row in self._target.rows("specs")}
        for table in ("specs", "declared_queues"):
            rows = [row async for row in self._scratch.rows(table)]
            if new := [row for row in rows if row["tenant"] not in with_specs]:
                await self._target.insert(table, new)
            if table == "specs" and len(new) < len(rows):
                yield "specs, because the store has some: apply them with `fairlane spec apply`"
        if keys := [row["name"] async for row in self._scratch.rows("api_keys")]:
            yield f"keys, whose secrets are not exported ({', '.join(keys)}): create them with `fairlane key create`"


_REFERENCES: Final[Mapping[str, str]] = {
    "tenant_id": "tenants",
    "queue_id": "queues",
    "partition_id": "partitions",
    "group_id": "groups",
    "segment_id": "scheduled_segments",
}
"""Tables whose ids these columns hold."""
_SAME_ID: Final = {"scheduled_messages": "scheduled_segments"}


def _ids(row: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield (position, transactionId) of the messages of a segment."""
    ends: list[int] = msgspec.json.decode(row["ends"])
    segment = Segment(row["first_pos"], row["created_at"], ends, row["body"], row["checksum"])
    for index, fragment in enumerate(segment.fragments(segment.first, segment.first + len(ends))):
        yield segment.first + index, ids_of(fragment)[1]
