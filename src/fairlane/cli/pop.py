"""`fairlane pop`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, Line, echo, moment, print_line
from fairlane.errors import InvalidRequest
from fairlane.model.group import Subscription
from fairlane.model.names import QUEUE_MODE

if TYPE_CHECKING:
    from fairlane.blocking import Client
    from fairlane.client import Message


def pop(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)],
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="Only from this lane.", show_default=False)
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The consumer group; needed if others consume the queue.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", "-n", help="Messages at most.")] = 1,
    wait: Annotated[float, typer.Option("--wait", "-w", help="Seconds to wait for the first one.")] = 0.0,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Finish them once they are printed, or leave them leased.")
    ] = True,
    lease_seconds: Annotated[
        int | None, typer.Option(help="How long they stay leased without an ack.", show_default=False)
    ] = None,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Take messages from a queue and print them, one a line.

    They are finished when they were printed. With --no-ack they stay leased, and `fairlane ack` says what became of
    them. The exit code is 1 when there was nothing to take.
    """
    with connected(server) as client:
        if group is None:
            _check_alone(client, queue)
        popped = client.pop(
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
            print_line(_line(message), json=json)
        if ack:
            client.ack(popped)
    if not popped:
        echo(f"There is nothing to take from {queue}.")
        raise typer.Exit(1)


def _check_alone(client: Client, queue: str) -> None:
    """InvalidRequest if consumers read the queue, and none of them without naming a group: what they take would be
    taken once more, for nobody."""
    consumers = [group.name for group in client.groups(queue) if not group.look]
    if consumers and QUEUE_MODE not in consumers:
        raise InvalidRequest(
            f"{queue} is consumed by {', '.join(sorted(consumers))}: a pop without --group takes nothing from them. "
            f"Look with `fairlane tail {queue}`, or say for which group to take with --group"
        )


def _line(message: Message[Any]) -> Line:
    return Line(
        id=message.id,
        transaction_id=message.transaction_id,
        queue=message.queue,
        partition=message.partition,
        created_at=moment(message.created_at),
        data=message.raw,
        type=message.type,
        headers=message.headers,
        lease_id=message.lease or None,
        partition_id=str(message.partition_id),
        consumer_group=message.group,
    )
