"""`fairlane message ...`"""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli import REFUSED, TRY_AGAIN
from fairlane.cli.verb import Client, QueueName, Shown, arg, noun, opt, verb

app = noun()

Id = Annotated[str, arg("ID", "transactionId of the message.")]
Partition = Annotated[str, opt("The partition that it is in.")]
Group = Annotated[
    str | None, opt("The consumer group; else the one that carries out commands, the queue's own, or the only one.")
]


@verb(app)
async def result(
    client: Client,
    queue: QueueName,
    id: Id,
    partition: Partition = "Default",
    group: Group = None,
    wait: Annotated[float, opt("Seconds to wait for it.")] = 0.0,
) -> Shown:
    """Print what the handler or command of a message returned. Exits 75 if it is not done yet, 2 if it was given up."""
    found = await client.results.get(queue, id, partition=partition, group=group, wait=wait)
    if found.status == "completed":
        return Shown(found, lambda: typer.echo(bytes(found.raw)))
    if found.status == "dead_letter":
        return Shown(found, f"Group {found.consumer_group} gave it up: {found.error}", REFUSED)
    state = "is at it now" if found.status == "processing" else "has not begun it"
    return Shown(found, f"Group {found.consumer_group} {state}; --wait waits for it.", TRY_AGAIN)
