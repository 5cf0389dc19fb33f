"""`fairlane pop` and `fairlane ack`: what one leaves leased, the other finishes."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Annotated

import msgspec

from fairlane.cli import Exit
from fairlane.cli.output import Line, echo, print_line
from fairlane.cli.verb import AsJson, Client, Noun, QueueName, Shown, arg, opt, verb
from fairlane.errors import InvalidRequest
from fairlane.model.group import Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckItem, AckStatus

app = Noun()


@verb(app)
async def pop(
    client: Client,
    queue: QueueName,
    partition: Annotated[str | None, opt("Only from this lane.", "--partition", "-p")] = None,
    group: Annotated[
        str | None, opt("The consumer group; needed if others consume the queue.", "--group", "-g")
    ] = None,
    batch: Annotated[int, opt("Messages at most.", "--batch", "-n")] = 1,
    wait: Annotated[float, opt("Seconds to wait for the first one.", "--wait", "-w")] = 0.0,
    ack: Annotated[bool, opt("Finish them once they are printed, or leave them leased.", "--ack/--no-ack")] = True,
    lease_seconds: Annotated[int | None, opt("How long they stay leased without an ack.")] = None,
    json: AsJson = False,
) -> None:
    """Take messages from a queue and print them, one a line.

    They are finished when they were printed. With --no-ack they stay leased, and `fairlane ack` says what became of
    them. The exit code is 1 when there was nothing to take.
    """
    if group is None:
        await _check_alone(client, queue)
    popped = await client.pop(
        queue,
        partition=partition,
        group=group or QUEUE_MODE,
        batch=batch,
        partitions=batch,
        wait=wait,
        lease_seconds=lease_seconds,
        subscription=Subscription(look=True),
    )
    for message in popped:
        leased = {"lease_id": message.lease or None, "partition_id": str(message.partition_id)}
        line = Line.of(message, message, **leased, consumer_group=message.group)
        print_line(line, json=json)
    if ack:
        await client.ack(popped)
    if not popped:
        echo(f"There is nothing to take from {queue}.")
        raise Exit(1)


async def _check_alone(client: Client, queue: str) -> None:
    """InvalidRequest if consumers read the queue, and none of them without naming a group: what they take would be
    taken once more, for nobody."""
    consumers = [group.name for group in await client.groups.list(queue) if not group.look]
    if consumers and QUEUE_MODE not in consumers:
        raise InvalidRequest(
            f"{queue} is consumed by {', '.join(sorted(consumers))}: a pop without --group takes nothing from them. "
            f"Look with `fairlane tail {queue}`, or say for which group to take with --group"
        )


class _Taken(msgspec.Struct, rename="camel"):
    """The fields of a line of `fairlane pop --no-ack --json` that name a message."""

    transaction_id: str
    partition_id: str
    lease_id: str | None = None
    consumer_group: str = QUEUE_MODE


_decode = msgspec.json.Decoder(_Taken).decode


@verb(app)
async def ack(
    client: Client,
    partition_id: Annotated[str | None, arg("PARTITION_ID", "As a pop shows it.")] = None,
    ids: Annotated[list[str] | None, arg("ID", "The transactionIds.")] = None,
    status: Annotated[AckStatus, opt("What became of them.", "--status")] = "completed",
    error: Annotated[str | None, opt("Why it failed.", "--error")] = None,
    lease: Annotated[str | None, opt("The lease they are held by.", "--lease", "-l")] = None,
    group: Annotated[str, opt("The consumer group.", "--group", "-g", shown="")] = QUEUE_MODE,
) -> Shown:
    """Say what became of messages that a pop left leased.

    Without arguments they are read from standard input, as pop prints them:

        fairlane pop orders --no-ack --json | fairlane ack
    """
    if partition_id is None:
        taken = _lines()
    elif not ids:
        raise InvalidRequest("name the transactionId of a message behind the id of its partition")
    else:
        taken = [_Taken(id, partition_id, lease, group) for id in ids]
    groups: dict[str, list[AckItem]] = defaultdict(list)
    for one in taken:
        item = AckItem(
            transaction_id=one.transaction_id,
            partition=PartitionId.parse(one.partition_id),
            status=status,
            lease=one.lease_id,
            error=error,
        )
        groups[one.consumer_group].append(item)
    outcomes = [outcome for name, items in groups.items() for outcome in await client.ack_many(items, group=name)]
    shown = [{"transactionId": one.transaction_id, "success": one.success, "error": one.error} for one in outcomes]
    refused = [f"{one.transaction_id}: {one.error}\n" for one in outcomes if not one.success]
    count = f"{len(outcomes) - len(refused)} of {len(outcomes)} said to be {status}."
    return Shown(shown, f"{''.join(refused)}{count}", 1 if refused else 0)


def _lines() -> list[_Taken]:
    if sys.stdin.isatty():
        raise InvalidRequest(
            "name a partition and transactionIds, or give lines of `fairlane pop --no-ack --json` on standard input"
        )
    try:
        return [_decode(line) for line in sys.stdin.buffer if line.strip()]
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"standard input has no lines of `fairlane pop --no-ack --json`: {error}") from None
