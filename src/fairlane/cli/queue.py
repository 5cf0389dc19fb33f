"""`fairlane queue ...`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from fairlane.cli.output import confirm, counted, echo, print_table, shown_time
from fairlane.cli.verb import Client, Limit, Noun, QueueName, Shown, Yes, arg, columns_of, opt, verb
from fairlane.errors import AlreadyExists, InvalidRequest, NotFound
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE
from fairlane.model.queue import QueueOptions

if TYPE_CHECKING:
    from fairlane.client import Counts, QueueDetail

app = Noun("queue")

Group = Annotated[str | None, opt("Only this group.")]
Partition = Annotated[str | None, opt("Only this partition.")]
_QUEUES = columns_of("queue=name partitions pending=messages.pending leased=messages.processing stored=messages.total")
_LEASES = columns_of(
    "queue partition group=consumer_group done held left",
    done=lambda one: f"{one.completed}/{one.messages}",
    held=lambda one: f"{one.seconds_held:.0f} s",
    left=lambda one: f"{one.seconds_remaining:.0f} s",
)
_SCHEDULED = columns_of("due=deliver_at partition id=transaction_id")


@verb(app, "list", columns=_QUEUES, empty="There are no queues.")
async def list_queues(client: Client) -> Any:
    """List the queues."""
    return await client.queues.list()


@verb(app, columns=_LEASES, empty="Nobody holds a lease.")
async def leases(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Of this queue.")] = None,
    within: Annotated[int | None, opt("That end in so many seconds.")] = None,
    limit: Limit = 100,
) -> Any:
    """List live leases, the next to end first."""
    return await client.queues.leases(queue, ending_within=within, limit=limit)


@verb(app)
async def show(client: Client, queue: QueueName) -> Shown:
    """Show a queue and its partitions."""
    detail = await _found(client, queue)
    if detail is None:
        raise NotFound(f"there is no queue {queue!r}")

    def printed() -> None:
        rows = [(part.name, *_counts(part.stats), shown_time(part.newest_message)) for part in detail.partitions]
        if detail.next is not None:
            echo(f"Of its partitions the first {len(rows)}; the last row counts all.")
        columns = ("partition", "pending", "leased", "finished", "dead", "stored", "last message")
        print_table(columns, [*rows, ("all", *_counts(detail.totals), "")], empty="")

    return Shown(detail, printed)


@verb(app)
async def create(
    client: Client,
    queue: QueueName,
    lease_seconds: Annotated[int | None, opt("How long a consumer may keep a message.")] = None,
    retry_limit: Annotated[int | None, opt("Failed attempts that are followed by another.")] = None,
    retry_delay_ms: Annotated[int | None, opt("Sleep after the first failure; doubles.")] = None,
    max_size: Annotated[int | None, opt("Messages it holds at most; 0 for no limit.")] = None,
    option: Annotated[list[str] | None, opt("Any other option, by its name.", "--set", metavar="NAME=VALUE")] = None,
    replace: Annotated[bool, opt("Replace the options of one that is there.", "--replace")] = False,
) -> Shown:
    """Create a queue. A push creates one too, with the default options."""
    given = {
        "lease_seconds": lease_seconds,
        "retry_limit": retry_limit,
        "retry_delay_ms": retry_delay_ms,
        "max_size": max_size,
    }
    options = {name: value for name, value in given.items() if value is not None} | _options(option or [])
    if not replace and await _found(client, queue) is not None:
        raise AlreadyExists(
            f"queue {queue!r} is there already; `fairlane queue set` changes some options, --replace sets all anew"
        )
    configured = await client.queues.configure(queue, **options)
    return Shown({"queue": queue, "options": msgspec.structs.asdict(configured)}, f"Queue {queue} is there.")


@verb(app, "set")
async def set_options(
    client: Client, queue: QueueName, option: Annotated[list[str], arg("NAME=VALUE", "Options, by their names.")]
) -> Shown:
    """Change some options of a queue; the others stay as they are."""
    configured = await client.queues.set_options(queue, **_options(option))
    shown = {"queue": queue, "options": msgspec.structs.asdict(configured)}
    return Shown(shown, f"Queue {queue} has {', '.join(option)}.")


@verb(app)
async def clear(
    client: Client,
    queue: QueueName,
    partition: Annotated[str | None, opt("Only of this partition.", "--partition", "-p")] = None,
    yes: Yes = False,
) -> Shown:
    """Take every message out of a queue, read or not. The queue and its groups stay."""
    what = f"queue {queue}" if partition is None else f"partition {partition} of {queue}"
    confirm(f"Take every message out of {what}?", yes)
    cleared = await client.queues.clear(queue, partition=partition)
    shown = {"queue": queue, "partition": partition, "cleared": cleared}
    return Shown(shown, f"{counted(cleared, 'message')} taken out of {what}.")


@verb(app)
async def pause(client: Client, queue: QueueName, group: Group = None, partition: Partition = None) -> Shown:
    """Hand out nothing more of a queue.

    With --group or --partition, of that part of it. Pushes go on."""
    await client.pauses.pause(queue, group=group, partition=partition)
    shown = {"queue": queue, "group": group, "partition": partition, "paused": True}
    return Shown(shown, f"{_part(queue, group, partition)} is paused.")


@verb(app)
async def resume(
    client: Client,
    queue: QueueName,
    group: Group = None,
    partition: Partition = None,
    lanes: Annotated[bool, opt("All blocked and parked lanes of the group.", "--lanes")] = False,
) -> Shown:
    """Hand out again what was paused.

    With --group and --partition, or with --lanes, also what is blocked or parked."""
    if lanes:
        resumed = await client.pauses.resume_lanes(queue, group or QUEUE_MODE)
        text = f"{counted(resumed, 'lane')} of {queue} resumed."
    else:
        resumed = int(await client.pauses.resume(queue, group=group, partition=partition))
        text = f"{_part(queue, group, partition)} {'goes on.' if resumed else 'was not paused.'}"
    return Shown({"queue": queue, "group": group, "partition": partition, "resumed": resumed}, text)


@verb(app)
async def explain(
    client: Client,
    queue: QueueName,
    partition: Annotated[str, arg("PARTITION", "Name of the partition.")],
    group: Group = None,
) -> Shown:
    """Say why a partition does not move."""
    explained = await client.pauses.explain(queue, partition, group or QUEUE_MODE)
    return Shown(explained, explained.sentence)


@verb(app, columns=_SCHEDULED, rows="messages", empty="Nothing waits for its time.")
async def scheduled(client: Client, queue: QueueName) -> Any:
    """List the next messages that wait for their time."""
    return await client.scheduled.list(queue)


@verb(app)
async def cancel(
    client: Client,
    queue: QueueName,
    id: Annotated[str, arg("ID", "Its transactionId.")],
    partition: Annotated[str, opt("Its lane.", "--partition", "-p")] = DEFAULT_PARTITION,
) -> Shown:
    """Forget a message that waits for its time."""
    if not await client.scheduled.cancel(queue, id, partition=partition):
        raise NotFound(f"no message {id!r} waits in partition {partition!r} of {queue!r}")
    shown = {"queue": queue, "partition": partition, "id": id, "cancelled": True}
    return Shown(shown, f"Message {id} of {queue} will not come.")


@verb(app)
async def delete(client: Client, queue: QueueName, yes: Yes = False) -> Shown:
    """Delete a queue with all that is in it."""
    confirm(f"Delete queue {queue} and every message in it?", yes)
    if not await client.queues.delete(queue):
        raise NotFound(f"there is no queue {queue!r}")
    return Shown({"queue": queue, "deleted": True}, f"Queue {queue} is gone.")


def _part(queue: str, group: str | None, partition: str | None) -> str:
    part = f"Queue {queue}" if partition is None else f"Partition {partition} of {queue}"
    return part if group is None else f"{part} for group {group}"


async def _found(client: Client, queue: str) -> QueueDetail | None:
    try:
        return await client.queues.show(queue)
    except NotFound:
        return None


def _options(settings: list[str]) -> dict[str, Any]:
    """Return NAME=VALUE pairs as queue options, each as the type it has. The names of the API do too."""
    from fairlane.wire.queues import OPTION_NAMES, camel

    spelt = {one: name for name, wire in OPTION_NAMES.items() for one in (name, wire, camel(name))}
    texts: dict[str, str] = {}
    for setting in settings:
        given, equals, value = setting.partition("=")
        name = spelt.get(given.strip().replace("-", "_"))
        if not equals or name is None:
            known = ", ".join(QueueOptions.__struct_fields__)
            raise InvalidRequest(f"{setting!r} sets no option of a queue; write NAME=VALUE with one of {known}")
        if name in texts:
            raise InvalidRequest(f"{setting!r} sets {name}, which is set already; give it once")
        texts[name] = value.strip()
    try:
        options = msgspec.convert(texts, QueueOptions, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"--set: {error}") from None
    return {name: getattr(options, name) for name in texts}


def _counts(counts: Counts) -> tuple[int, ...]:
    return counts.pending, counts.processing, counts.completed, counts.dead_letter, counts.total
