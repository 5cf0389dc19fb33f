"""`fairlane message ...`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

from fairlane.cli import REFUSED, TRY_AGAIN
from fairlane.cli.output import confirm, printable
from fairlane.cli.verb import Client, Limit, Noun, QueueName, Shown, Yes, arg, columns_of, opt, verb

app = Noun("message")

Id = Annotated[str, arg("ID", "transactionId of the message.")]
Partition = Annotated[str, opt("The partition that it is in.")]
Group = Annotated[
    str | None, opt("The consumer group; else the one that carries out commands, the queue's own, or the only one.")
]


PartitionId = Annotated[str, arg("PARTITION_ID", "Of its partition, as `message list` shows it.")]
_HEADS = columns_of("transaction_id partition_id queue partition status created=created_at trace=trace_id")
_FACTS = columns_of(
    "transaction_id queue partition position status created=created_at trace=trace_id type retries=retry_count "
    "error=error_message data",
    data=lambda one: bytes(one.raw).decode(errors="replace"),
)


@verb(app, "list", columns=_HEADS, rows="messages", empty="There are no such messages.")
async def list_messages(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Only those of this queue.")] = None,
    partition: Annotated[str | None, opt("Only of this partition.", "--partition", "-p")] = None,
    id: Annotated[str | None, opt("Only with this transactionId.", "--id")] = None,
    trace_id: Annotated[str | None, opt("Only those of this trace.")] = None,
    limit: Limit = 20,
) -> Any:
    """List stored messages, newest first, without taking them."""
    return await client.messages.list(queue, partition=partition, transaction_id=id, trace_id=trace_id, limit=limit)


@verb(app, facts=_FACTS)
async def show(client: Client, partition_id: PartitionId, id: Id) -> Any:
    """Show a stored message whole, and how far groups are with it."""
    return await client.messages.get(partition_id, id)


@verb(app)
async def retry(client: Client, partition_id: PartitionId, id: Id) -> Shown:
    """Push a dead or finished message again, as a copy that names it."""
    copy = await client.messages.retry(partition_id, id)
    return Shown({"transactionId": id, "messageId": copy}, f"Message {id} is pushed again as {copy}.")


@verb(app)
async def delete(client: Client, partition_id: PartitionId, id: Id, yes: Yes = False) -> Shown:
    """Delete a message: no group gets it any more."""
    confirm(f"Delete message {id} for good?", yes)
    await client.messages.delete(partition_id, id)
    return Shown({"transactionId": id, "deleted": True}, f"Message {id} is gone.")


@verb(app, "dead-letter")
async def dead_letter(
    client: Client,
    partition_id: PartitionId,
    id: Id,
    group: Annotated[str | None, opt("Only for this group.")] = None,
    error: Annotated[str | None, opt("Why.")] = None,
) -> Shown:
    """Give a message up, for a group or for all that have not finished it."""
    groups = await client.messages.dead_letter(partition_id, id, group=group, error=error)
    return Shown({"transactionId": id, "groups": groups}, f"Message {id} is a dead letter of {', '.join(groups)}.")


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
        return Shown(found, lambda: sys.stdout.write(printable(bytes(found.raw).decode(errors="replace")) + "\n"))
    if found.status == "dead_letter":
        return Shown(found, f"Group {found.consumer_group} gave it up: {found.error}", REFUSED)
    state = "is at it now" if found.status == "processing" else "has not begun it"
    return Shown(found, f"Group {found.consumer_group} {state}; --wait waits for it.", TRY_AGAIN)
