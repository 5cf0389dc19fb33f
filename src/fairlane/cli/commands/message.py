"""`fairlane message`: inspect, retry and delete stored messages."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from fairlane.cli import REFUSED, TRY_AGAIN
from fairlane.cli.toolkit.command import (
    Client,
    CommandGroup,
    Limit,
    Output,
    QueueName,
    Yes,
    arg,
    client_command,
    columns_of,
    opt,
)
from fairlane.cli.toolkit.output import confirm, printable
from fairlane.model.names import QUEUE_MODE
from fairlane.wire.browse import GroupView

app = CommandGroup("message")


def progress_text(group: GroupView) -> str:
    """Return the progress of a message in a group, for people."""
    assert group.progress is not None
    name = "" if group.name == QUEUE_MODE else f"{group.name}: "
    return f"{name}{group.progress.fraction:.0%} {group.progress.text}".rstrip()


Id = Annotated[str, arg("ID", "The transactionId of the message.")]
Partition = Annotated[str, opt("Partition of the message.")]
Group = Annotated[
    str | None, opt("Consumer group; by default the group of commands, the queue's own group, or the only group.")
]


PartitionId = Annotated[str, arg("PARTITION_ID", "Id of the partition, as `message list` shows it.")]
_HEADS = columns_of("transaction_id partition_id queue partition status created=created_at trace=trace_id")
_FIELDS = columns_of(
    "transaction_id queue partition position status created=created_at trace=trace_id type retries=retry_count "
    "error=error_message progress data",
    progress=lambda one: "; ".join(progress_text(each) for each in one.consumer_groups if each.progress is not None),
    data=lambda one: bytes(one.raw).decode(errors="replace"),
)


@client_command(app, "list", columns=_HEADS, rows="messages", empty="No messages match.")
async def list_messages(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Only messages of this queue.")] = None,
    partition: Annotated[str | None, opt("Only messages of this partition.", "--partition", "-p")] = None,
    id: Annotated[str | None, opt("Only the message with this transactionId.", "--id")] = None,
    trace_id: Annotated[str | None, opt("Only messages of this trace.")] = None,
    limit: Limit = 20,
) -> Any:
    """List stored messages, newest first, without consuming them."""
    return await client.messages.page(queue, partition=partition, transaction_id=id, trace_id=trace_id, limit=limit)


@client_command(app, fields=_FIELDS)
async def show(client: Client, partition_id: PartitionId, id: Id) -> Any:
    """Show a stored message with its payload and status."""
    return await client.messages.get(partition_id, id)


@client_command(app)
async def retry(client: Client, partition_id: PartitionId, id: Id) -> Output:
    """Push a copy of a dead or completed message to the end of its partition."""
    copy = await client.messages.retry(partition_id, id)
    return Output({"transactionId": id, "messageId": copy}, f"Pushed message {id} again as {copy}.")


@client_command(app)
async def delete(client: Client, partition_id: PartitionId, id: Id, yes: Yes = False) -> Output:
    """Delete a message for all consumer groups."""
    confirm(f"Delete message {id} permanently?", yes)
    await client.messages.delete(partition_id, id)
    return Output({"transactionId": id, "deleted": True}, f"Deleted message {id}.")


@client_command(app, "dead-letter")
async def dead_letter(
    client: Client,
    partition_id: PartitionId,
    id: Id,
    group: Annotated[str | None, opt("Dead-letter it for this group only.")] = None,
    error: Annotated[str | None, opt("Error text of the dead letter.")] = None,
) -> Output:
    """Make a message a dead letter, for one group or for every group that has not completed it."""
    groups = await client.messages.dead_letter(partition_id, id, group=group, error=error)
    return Output({"transactionId": id, "groups": groups}, f"Message {id} is now a dead letter of {', '.join(groups)}.")


@client_command(app)
async def cancel(
    client: Client,
    queue: QueueName,
    id: Id,
    partition: Partition = "Default",
    group: Annotated[str | None, opt("Cancel it for this group only.")] = None,
) -> Output:
    """Cancel a message that is scheduled, waiting or being handled, for one group or all that have not completed it."""
    found = await client.cancel(queue, id, partition=partition, group=group)
    if found.before == "cancelled":
        return Output(found, f"Message {id} was cancelled before.")
    held = "; its worker stops within a second" if found.before == "processing" else ""
    return Output(found, f"Cancelled message {id}, which was {found.before}{held}.")


@client_command(app)
async def result(
    client: Client,
    queue: QueueName,
    id: Id,
    partition: Partition = "Default",
    group: Group = None,
    wait: Annotated[float, opt("Seconds to wait for the result.")] = 0.0,
) -> Output:
    """Print the result of a handler. Exits 75 if it is not finished, 2 if it is a dead letter or was cancelled."""
    found = await client.results.get(queue, id, partition=partition, group=group, wait=wait)
    if found.status == "completed":
        return Output(found, lambda: sys.stdout.write(printable(bytes(found.raw).decode(errors="replace")) + "\n"))
    if found.status == "dead_letter":
        return Output(found, f"Group {found.consumer_group} dead-lettered the message: {found.error}", REFUSED)
    if found.status == "cancelled":
        return Output(found, f"The message was cancelled for group {found.consumer_group}.", REFUSED)
    state = "is processing the message" if found.status == "processing" else "has not started the message"
    return Output(found, f"Group {found.consumer_group} {state}; use --wait to wait for the result.", TRY_AGAIN)
