"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from click.exceptions import Exit

from fairlane.errors import InvalidRequest


def print_json(value: Any) -> None:
    """Print a JSON document on one line."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=_plain).decode() + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print a table. Without rows, prints `empty` to stderr."""
    if not rows:
        echo(empty)
        return
    from fairlane.cli.toolkit.table import lines  # commands without a table do not import it

    sys.stdout.write("".join(f"{line}\n" for line in lines(columns, rows)))


class MessageLine(msgspec.Struct, rename="camel", omit_defaults=True):
    """A message in the output of a command."""

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
    def of(cls, head: Any, message: Any, **more: Any) -> MessageLine:
        """Combine the head of a message with its content."""
        known = {field: getattr(head, field) for field in ("id", "transaction_id", "queue", "partition")}
        at = to_datetime(head.created_at)
        return cls(**known, created_at=at, data=message.raw, type=message.type, headers=message.headers, **more)


def print_message(line: MessageLine, *, json: bool) -> None:
    """Print a message on one line."""
    if json:
        print_json(line)
        return
    data = bytes(line.data).decode(errors="replace")
    sys.stdout.write(printable(f"{line.created_at:%Y-%m-%d %H:%M:%S}Z  {line.partition}  {data}") + "\n")
    sys.stdout.flush()


def print_lines(text: str) -> None:
    """Print lines of text. Control characters inside a line are escaped."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in text.split("\n")))


def echo(text: str) -> None:
    """Print a line to stderr, where it does not mix with the output for programs."""
    sys.stderr.write(f"{text}\n")


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation unless `yes`. Exits if the answer is no, and raises InvalidRequest without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(f"{question} Confirm with --yes; there is no terminal to ask.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    # In a coroutine asyncio handles SIGINT, and would wait for the end of the line.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    if answer.strip().lower() not in ("y", "yes"):
        echo("Cancelled.")
        raise Exit(1)


def to_datetime(at: int) -> datetime:
    """Convert a time of the API, in microseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def parse_time(text: str, option: str, must: str = "a time like 2026-01-31T12:00:00Z") -> int:
    """Parse the time in an option. Returns microseconds since 1970."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{option} is {text!r}; it must be {must}") from None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)


def format_time(at: int | None) -> str:
    """Format a time for people."""
    return "" if at is None else f"{to_datetime(at):%Y-%m-%d %H:%M:%S}Z"


def time_cell(get: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Return a column function that formats a time."""
    return lambda one: format_time(get(one))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun if count == 1 else f'{noun}s'}"


def printable(text: str) -> str:
    """Escape control characters, which a terminal would interpret."""
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def _plain(value: Any) -> Any:
    """Encode a datetime for JSON."""
    return value.isoformat()
