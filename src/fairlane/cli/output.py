"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fairlane.cli import Exit
from fairlane.errors import InvalidRequest


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=_plain).decode() + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Rows under their column names; numbers to the right. `empty` is said instead, aside, when there are none."""
    if not rows:
        echo(empty)
        return
    from fairlane.cli.table import lines  # what prints no table does not wait for it

    sys.stdout.write("".join(f"{line}\n" for line in lines(columns, rows)))


class Line(msgspec.Struct, rename="camel", omit_defaults=True):
    """A message as a command prints it."""

    id: str
    transaction_id: str
    queue: str
    partition: str
    created_at: datetime
    data: msgspec.Raw
    type: str | None = None
    headers: dict[str, str] | None = None
    lease_id: str | None = None
    partition_id: str | None = None
    consumer_group: str | None = None

    @classmethod
    def of(cls, head: Any, message: Any, **more: Any) -> Line:
        """A message by what heads it, where it was read from the store by that, and the message itself."""
        known = {field: getattr(head, field) for field in ("id", "transaction_id", "queue", "partition")}
        at = moment(head.created_at)
        return cls(**known, created_at=at, data=message.raw, type=message.type, headers=message.headers, **more)


def print_line(line: Line, *, json: bool) -> None:
    """One message on one line."""
    if json:
        print_json(line)
        return
    data = bytes(line.data).decode(errors="replace")
    sys.stdout.write(printable(f"{line.created_at:%Y-%m-%d %H:%M:%S}Z  {line.partition}  {data}") + "\n")
    sys.stdout.flush()


def echo(text: str) -> None:
    """Something for the person at the terminal, out of the way of what the command prints."""
    sys.stderr.write(f"{text}\n")


def confirm(question: str, yes: bool) -> None:
    """Go on only if that is wished. Without a terminal nobody can be asked, so nothing is done."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(f"{question} Say --yes, as there is nobody to ask.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        echo("Nothing was done.")
        raise Exit(1)


def moment(at: int) -> datetime:
    """A point in time of the API, which counts microseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def micros(text: str, option: str, must: str = "a time like 2026-01-31T12:00:00Z") -> int:
    """A point in time that an option gives, as the API counts it."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{option} is {text!r}; it must be {must}") from None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)


def shown_time(at: int | None) -> str:
    """A point in time as people read it."""
    return "" if at is None else f"{moment(at):%Y-%m-%d %H:%M:%S}Z"


def shown_at(get: Callable[[Any], Any]) -> Callable[[Any], str]:
    """A cell with a point in time."""
    return lambda one: shown_time(get(one))


def counted(count: int, noun: str) -> str:
    return f"{count} {noun if count == 1 else f'{noun}s'}"


def printable(text: str) -> str:
    """The text without anything that a terminal would obey."""
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def _plain(value: Any) -> Any:
    """Points in time are texts in JSON."""
    return value.isoformat()
