"""`fairlane push`: push messages from arguments, standard input or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import click
import msgspec

from fairlane.cli.toolkit.command import AsJson, Client, CommandGroup, Server, arg, call_broker, command, opt
from fairlane.cli.toolkit.output import echo, parse_time, plural, print_json
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.message import PushItem, check_payload
from fairlane.model.names import DEFAULT_PARTITION, DEFAULT_SERVER
from fairlane.model.outcome import PushOutcome
from fairlane.model.unique import Unique

CHUNK_ITEMS = 500
CHUNK_BYTES = 1024 * 1024
FILE_ATTEMPTS = 20  # a queue may be full for a while


app = CommandGroup()


@command(app)
def push(
    queue: Annotated[str, arg("QUEUE", "Name of the queue. It is created if it does not exist.")],
    data: Annotated[str | None, arg("JSON|-", "The message, or - to read it from standard input.")] = None,
    partition: Annotated[
        str, opt("Partition of the message. Messages of a partition are delivered in order.", "--partition", "-p")
    ] = DEFAULT_PARTITION,
    file: Annotated[Path | None, opt("File with one message per line; - for standard input.", "--file", "-f")] = None,
    id: Annotated[str | None, opt("The transactionId. A second push with the same id stores nothing.", "--id")] = None,
    type: Annotated[str | None, opt("Type of the message.", "--type")] = None,
    header: Annotated[tuple[str, ...], opt("Header of the message. Can be repeated.", metavar="NAME=VALUE")] = (),
    delay_ms: Annotated[int | None, opt("Milliseconds to wait before delivery.")] = None,
    deliver_at: Annotated[str | None, opt("Time of delivery, like 2026-01-31T12:00:00Z.")] = None,
    trace_id: Annotated[str | None, opt("Trace id, a UUID.")] = None,
    priority: Annotated[
        int | None, opt("Priority; higher ones are delivered first.", type=click.IntRange(0, 9))
    ] = None,
    max_attempts: Annotated[
        int | None, opt("Total number of attempts, instead of the queue's retry_limit + 1.", type=click.IntRange(1))
    ] = None,
    unique: Annotated[
        Unique | None, opt("Store it only if no other message with its key is waiting, or waiting or running.")
    ] = None,
    unique_key: Annotated[str | None, opt("Key for --unique, instead of type and payload.")] = None,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> None:
    """Push a message, or every line of a file.

    With --file, every non-blank line is a message. Lines are pushed in order:

        fairlane push orders '{"total": 42}' --partition customer-7
        fairlane push orders --file events.jsonl
    """
    if data is not None and file is not None:
        raise InvalidRequest("give one message or --file, not both")
    if data is None and file is None:
        raise InvalidRequest("give the message as JSON, - to read it from standard input, or --file")
    blank = PushItem(
        queue=queue,
        payload=b"",
        partition=partition,
        type=type,
        headers=_headers(header),
        delay_ms=delay_ms,
        deliver_at=None if deliver_at is None else parse_time(deliver_at, "--deliver-at"),
        trace_id=trace_id,
        priority=priority,
        max_attempts=max_attempts,
        unique=unique,
        unique_key=unique_key,
    )
    if file is not None:
        if id is not None:
            raise InvalidRequest("--id cannot be used with --file, which pushes many messages")
        call_broker(server, lambda client: _push_file(client, file, blank, json), attempts=FILE_ATTEMPTS)
        return
    payload = sys.stdin.buffer.read().strip() if data == "-" else str(data).encode()
    _check(payload, "the message")
    item = msgspec.structs.replace(blank, payload=payload, transaction_id=id)
    [outcome] = call_broker(server, lambda client: client.push_many([item]))
    if outcome.error is not None:
        raise outcome.error
    if json:
        shown = {"status": outcome.status, "transactionId": outcome.transaction_id, "messageId": outcome.message_id}
        print_json(shown | ({"operationId": outcome.operation_id} if outcome.operation_id else {}))
    elif outcome.status == "buffered":
        where = f"operation {outcome.operation_id}" if outcome.operation_id else "in the broker's journal"
        echo(f"{operation_text(outcome)} ({where})")
    else:
        echo(f"{outcome.status} as {outcome.message_id}")


def operation_text(outcome: PushOutcome) -> str:
    """Describe a push that became an operation."""
    position = "" if outcome.queue_position is None else f", position {outcome.queue_position}"
    wait = "" if outcome.estimated_wait is None else f", about {max(1, round(outcome.estimated_wait))} s"
    return f"queued{position}{wait}"


async def _push_file(client: Client, file: Path, blank: PushItem, json: bool) -> None:
    from fairlane.cli.toolkit.screen import ProgressBar

    pushed, operations, last = 0, 0, ""
    with ExitStack() as stack:
        stream, size = _open(file, stack)
        bar = stack.enter_context(ProgressBar())
        try:
            for items, read in _chunks(stream, str(file), blank):
                outcomes = await client.push_many(items)
                refused = [outcome.error for outcome in outcomes if outcome.error is not None]
                pushed += len(outcomes) - len(refused)
                for outcome in outcomes:
                    if outcome.status == "buffered":
                        operations, last = operations + 1, operation_text(outcome)
                if refused:
                    raise refused[0]
                bar.update(f"pushing to {blank.queue}: {plural(pushed, 'message')}", read, size)
        except FairlaneError as error:
            echo(f"Pushed {plural(pushed, 'message')} to {blank.queue} before this error:")
            raise error
    if json:
        print_json({"queue": blank.queue, "pushed": pushed})
    else:
        echo(f"Pushed {plural(pushed, 'message')} to {blank.queue}.")
        if operations:
            echo(f"{operations} of them are operations that wait for a busy broker: {last}.")


def _chunks(stream: BinaryIO, name: str, blank: PushItem) -> Iterator[tuple[list[PushItem], int]]:
    """Yield chunks of items and the number of bytes read. On an invalid line, yields the items before it and raises."""
    items: list[PushItem] = []
    size = read = 0
    for number, line in enumerate(stream, 1):
        read += len(line)
        payload = line.strip()
        if not payload:
            continue
        try:
            _check(payload, f"{name}, line {number}")
        except InvalidRequest:
            if items:
                yield items, read - len(line)
            raise
        items.append(msgspec.structs.replace(blank, payload=payload))
        size += len(payload)
        if len(items) >= CHUNK_ITEMS or size >= CHUNK_BYTES:
            yield items, read
            items, size = [], 0
    if items:
        yield items, read


def _open(file: Path, stack: ExitStack) -> tuple[BinaryIO, int | None]:
    if str(file) == "-":
        return sys.stdin.buffer, None
    try:
        return stack.enter_context(file.open("rb")), file.stat().st_size
    except OSError as error:
        raise InvalidRequest(f"cannot read {file}: {error.strerror}") from None


def _check(payload: bytes, what: str) -> None:
    try:
        check_payload(payload)
    except InvalidRequest as error:
        reason = str(error).removeprefix("payload is ").removeprefix("not JSON: ")
        raise InvalidRequest(f"""{what} is not JSON: {reason} (a text is written '"like this"')""") from None


def _headers(pairs: Iterable[str]) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequest(f"--header is {pair!r}; write NAME=VALUE")
        headers[name] = value
    return headers or None
