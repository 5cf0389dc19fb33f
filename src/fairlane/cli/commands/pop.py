"""`fairlane pop` and `fairlane ack`: pop messages, and ack those that stayed leased."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Annotated

import msgspec
from click.exceptions import Exit

from fairlane.cli.toolkit.command import AsJson, Client, CommandGroup, Output, QueueName, arg, client_command, opt
from fairlane.cli.toolkit.output import MessageLine, echo, print_message
from fairlane.errors import InvalidRequest
from fairlane.model.group import Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckItem, AckStatus

app = CommandGroup()


@client_command(app)
async def pop(
    client: Client,
    queue: QueueName,
    partition: Annotated[str | None, opt("Only messages of this partition.", "--partition", "-p")] = None,
    group: Annotated[
        str | None, opt("Consumer group; required if other groups consume the queue.", "--group", "-g")
    ] = None,
    batch: Annotated[int, opt("Maximum number of messages.", "--batch", "-n")] = 1,
    wait: Annotated[float, opt("Seconds to wait for the first message.", "--wait", "-w")] = 0.0,
    ack: Annotated[bool, opt("Ack the messages after printing them, or leave them leased.", "--ack/--no-ack")] = True,
    lease_seconds: Annotated[
        int | None, opt("Seconds until leased messages are delivered again; by default the queue's lease time.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Pop messages from a queue and print them, one per line.

    Messages are acked after they are printed. With --no-ack they stay leased until `fairlane ack` acks them or the
    lease expires. Exits 1 if there was no message.
    """
    if group is None:
        await _check_no_other_consumers(client, queue)
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
        line = MessageLine.of(message, message, **leased, consumer_group=message.group)
        print_message(line, json=json)
    if ack:
        await client.ack(popped)
    if not popped:
        echo(f"Queue {queue} has no messages to pop.")
        raise Exit(1)


async def _check_no_other_consumers(client: Client, queue: str) -> None:
    """Raise InvalidRequest if only named groups consume the queue.

    A pop without a group would read every message once more and take none from these groups.
    """
    consumers = [group.name for group in await client.groups.all(queue) if not group.look]
    if consumers and QUEUE_MODE not in consumers:
        raise InvalidRequest(
            f"{queue} is consumed by {', '.join(sorted(consumers))}: a pop without --group takes nothing from them. "
            f"Use `fairlane tail {queue}` to look, or --group to pop for a group"
        )


class _PoppedLine(msgspec.Struct, rename="camel"):
    """The fields of a line of `fairlane pop --no-ack --json` that name a message."""

    transaction_id: str
    partition_id: str
    lease_id: str | None = None
    consumer_group: str = QUEUE_MODE


_decode = msgspec.json.Decoder(_PoppedLine).decode


@client_command(app)
async def ack(
    client: Client,
    partition_id: Annotated[
        str | None, arg("PARTITION_ID", "Partition id, as `fairlane pop --json` prints it.")
    ] = None,
    ids: Annotated[tuple[str, ...], arg("ID", "transactionIds of the messages.")] = (),
    status: Annotated[
        AckStatus,
        opt(
            "What to report: completed (or success), failed, retry without a failed attempt, or dlq for a dead letter.",
            "--status",
        ),
    ] = "completed",
    error: Annotated[str | None, opt("Error text of failed messages.", "--error")] = None,
    lease: Annotated[str | None, opt("Lease id, as `fairlane pop --json` prints it.", "--lease", "-l")] = None,
    group: Annotated[str, opt("Consumer group of the pop.", "--group", "-g", show_default=False)] = QUEUE_MODE,
) -> Output:
    """Ack messages that a pop left leased.

    Without arguments, reads the output of `fairlane pop` from standard input:

        fairlane pop orders --no-ack --json | fairlane ack
    """
    if partition_id is None:
        popped = _lines()
    elif not ids:
        raise InvalidRequest("name at least one transactionId after the partition id")
    else:
        popped = [_PoppedLine(id, partition_id, lease, group) for id in ids]
    groups: dict[str, list[AckItem]] = defaultdict(list)
    for one in popped:
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
    count = f"{len(outcomes) - len(refused)} of {len(outcomes)} acked as {status}."
    return Output(shown, f"{''.join(refused)}{count}", 1 if refused else 0)


def _lines() -> list[_PoppedLine]:
    if sys.stdin.isatty():
        raise InvalidRequest(
            "name a partition id and transactionIds, or pipe in the output of `fairlane pop --no-ack --json`"
        )
    try:
        return [_decode(line) for line in sys.stdin.buffer if line.strip()]
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"standard input is not the output of `fairlane pop --no-ack --json`: {error}") from None
