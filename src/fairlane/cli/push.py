"""`fairlane push`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from fairlane.cli.output import counted, echo, micros, print_json
from fairlane.cli.verb import AsJson, Client, Noun, Server, arg, ask, opt
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.message import PushItem, check_payload
from fairlane.model.names import DEFAULT_PARTITION, DEFAULT_SERVER
from fairlane.model.outcome import PushOutcome

CHUNK_ITEMS = 500
CHUNK_BYTES = 1024 * 1024
PATIENCE = 20  # attempts, when a file meets a queue that is full for a while


app = Noun()


@app.command()
def push(
    queue: Annotated[str, arg("QUEUE", "Name of the queue; made if it is not there.")],
    data: Annotated[str | None, arg("JSON|-", "The message, or - to read it from the input.")] = None,
    partition: Annotated[str, opt("Its ordered lane.", "--partition", "-p")] = DEFAULT_PARTITION,
    file: Annotated[Path | None, opt("A file with a message on each line, - for the input.", "--file", "-f")] = None,
    id: Annotated[str | None, opt("Its transactionId: pushed twice, it is stored once.", "--id")] = None,
    type: Annotated[str | None, opt("What kind of message it is.", "--type")] = None,
    header: Annotated[list[str] | None, opt("A header; may be repeated.", metavar="NAME=VALUE")] = None,
    delay_ms: Annotated[int | None, opt("Deliver it after so many milliseconds.")] = None,
    deliver_at: Annotated[str | None, opt("Deliver it at a time like 2026-01-31T12:00:00Z.")] = None,
    trace_id: Annotated[str | None, opt("The trace that it belongs to: a UUID.")] = None,
    priority: Annotated[int | None, opt("Serve it before what has less.", least=0, most=9)] = None,
    max_attempts: Annotated[
        int | None, opt("Attempts in all, instead of the queue's retry_limit + 1.", least=1)
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> None:
    """Push a message, or every line of a file.

    With --file every line that is not blank is a message, pushed in their order:

        fairlane push orders '{"total": 42}' --partition customer-7
        fairlane push orders --file events.jsonl
    """
    if (data is None) == (file is None):
        raise InvalidRequest("give the message as JSON, - to read it from the input, or --file")
    blank = PushItem(
        queue=queue,
        payload=b"",
        partition=partition,
        type=type,
        headers=_headers(header),
        delay_ms=delay_ms,
        deliver_at=None if deliver_at is None else micros(deliver_at, "--deliver-at"),
        trace_id=trace_id,
        priority=priority,
        max_attempts=max_attempts,
    )
    if file is not None:
        if id is not None:
            raise InvalidRequest("--id names one message; the lines of a file have ids of their own")
        ask(server, lambda client: _push_file(client, file, blank, json), attempts=PATIENCE)
        return
    payload = sys.stdin.buffer.read().strip() if data == "-" else str(data).encode(errors="surrogateescape")
    _check(payload, "the message")
    item = msgspec.structs.replace(blank, payload=payload, transaction_id=id)
    [outcome] = ask(server, lambda client: client.push_many([item]))
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
    """A push that became an operation, in words."""
    position = "" if outcome.queue_position is None else f", position {outcome.queue_position}"
    wait = "" if outcome.estimated_wait is None else f", about {max(1, round(outcome.estimated_wait))} s"
    return f"queued{position}{wait}"


async def _push_file(client: Client, file: Path, blank: PushItem, json: bool) -> None:
    from fairlane.cli.screen import Bar

    pushed, operations, last = 0, 0, ""
    with ExitStack() as stack:
        stream, size = _opened(file, stack)
        bar = stack.enter_context(Bar())
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
                bar.update(f"pushing to {blank.queue}: {counted(pushed, 'message')}", read, size)
        except FairlaneError as error:
            echo(f"Pushed {counted(pushed, 'message')} to {blank.queue} before this:")
            raise error
    if json:
        print_json({"queue": blank.queue, "pushed": pushed})
    else:
        echo(f"Pushed {counted(pushed, 'message')} to {blank.queue}.")
        if operations:
            echo(f"{operations} of them wait for a busy broker: {last}.")


def _chunks(stream: BinaryIO, name: str, blank: PushItem) -> Iterator[tuple[list[PushItem], int]]:
    """The lines as items, so many at a time, and how far the stream was read. A bad line ends it, after those
    before it."""
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


def _opened(file: Path, stack: ExitStack) -> tuple[BinaryIO, int | None]:
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


def _headers(pairs: list[str] | None) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequest(f"--header is {pair!r}; write NAME=VALUE")
        headers[name] = value
    return headers or None
