"""The lines of an export: JSON objects, one for each row, with names instead of ids."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.names import DEFAULT_TENANT

FORMAT: Final = 1
HEADER: Final = "fairlane"
END: Final = "end"
MESSAGE: Final = "message"
_JSON_TEXT: Final = ("options", "quotas", "history", "document", "ends", "due")
"""Text columns that hold JSON."""
_IDS: Final = ("id", "tenant_id", "queue_id", "partition_id", "group_id")
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
KINDS: Final = {
    "queues": "queue",
    "groups": "group",
    "partitions": "partition",
    "skips": "skip",
    "message_keys": "messageKey",
    "deleted_ids": "deletedIds",
    "trims": "trim",
    "traced": "traced",
    "cursors": "cursor",
    "claims": "claim",
    "failures": "failure",
    "dead_letters": "deadLetter",
    "results": "result",
    "cancellations": "cancellation",
    "cancelled_ids": "cancelledId",
    "unique_keys": "uniqueKey",
    "scheduled_segments": "scheduledSegment",
    "scheduled_messages": "scheduledMessages",
    "scheduled_keys": "scheduledKey",
    "effects": "effect",
    "tenants": "tenant",
    "schedules": "schedule",
    "specs": "spec",
    "declared_queues": "declaredQueue",
    "api_keys": "apiKey",
}
"""Names of the lines of each table. Messages have lines of their own."""
TABLES: Final = {kind: table for table, kind in KINDS.items()}
encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
Line = dict[str, msgspec.Raw]


class Names(msgspec.Struct, frozen=True):
    """The place of a row."""

    tenant: str
    queue: str
    partition: str | None = None
    group: str | None = None


def line_of(kind: str, row: Mapping[str, Any], names: Names | None = None) -> bytes:
    """Return the line of a row."""
    fields: dict[str, Any] = {"kind": kind}
    if names is not None:
        if names.tenant != DEFAULT_TENANT:
            fields["tenant"] = names.tenant
        fields |= {"queue": names.queue, "partition": names.partition, "group": names.group}
    for name, value in row.items():
        if value is not None and not (names is not None and name in _IDS and name != "id"):
            fields[_camel(name)] = _shown(name, value)
    return encode({name: value for name, value in fields.items() if value is not None}) + b"\n"


def read_line(number: int, text: bytes) -> tuple[str, Line]:
    """Return the kind and the fields of a line. Raises InvalidRequest if it is not a line of an export."""
    try:
        line = _decode(text)
        return msgspec.json.decode(line.pop("kind"), type=str), line
    except (msgspec.DecodeError, KeyError):
        if not text.endswith(b"\n"):
            raise InvalidRequest(f"the export is cut off in line {number}; copy it again, or export again") from None
        raise InvalidRequest(f"line {number} is not a line of an export; `fairlane export` writes them") from None


def text(line: Line, name: str) -> str | None:
    """Return a text of a line. None if it has none."""
    found = line.get(name)
    return None if found is None else msgspec.json.decode(found, type=str)


def row_of(line: Line, columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns that a line has, as SQLite stores them."""
    row = {}
    for name, raw in line.items():
        column = _CAPITAL.sub(r"_\1", name).lower()
        if column in columns:
            row[column] = _stored(column, columns[column], raw)
    return row


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        # The body of a dead letter is a message without its closing brace.
        return msgspec.Raw(value + b"}") if name == "message" else base64.b64encode(value).decode()
    return msgspec.Raw(value.encode()) if name in _JSON_TEXT else value


def _stored(name: str, kind: str, raw: msgspec.Raw) -> Any:
    if kind == "blob":
        return bytes(raw)[:-1] if name == "message" else base64.b64decode(msgspec.json.decode(raw, type=str))
    return bytes(raw).decode() if name in _JSON_TEXT else msgspec.json.decode(raw)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
