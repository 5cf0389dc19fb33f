"""`fairlane queue`: manage queues."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from fairlane.cli.toolkit.command import (
    Client,
    CommandGroup,
    Limit,
    Output,
    QueueName,
    Yes,
    arg,
    check_queue,
    client_command,
    columns_of,
    missing_queue,
    opt,
)
from fairlane.cli.toolkit.output import confirm, echo, format_time, plural, print_table
from fairlane.errors import AlreadyExists, InvalidRequest, NotFound
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE
from fairlane.model.queue import QueueOptions

if TYPE_CHECKING:
    from fairlane.client import Counts, QueueDetail
    from fairlane.wire.pauses import Explained

app = CommandGroup("queue")

Group = Annotated[str | None, opt("Consumer group.")]
Partition = Annotated[str | None, opt("Partition of the queue.")]
_QUEUES = columns_of("queue=name partitions pending=messages.pending leased=messages.processing stored=messages.total")
_LEASES = columns_of(
    "queue partition group=consumer_group done held left",
    done=lambda one: f"{one.completed}/{one.messages}",
    held=lambda one: f"{one.seconds_held:.0f} s",
    left=lambda one: f"{one.seconds_remaining:.0f} s",
)
_LANES = columns_of(
    "partition state waiting failures oldest=oldest_at next_try=next_try_at error",
)
_SCHEDULED = columns_of("due=deliver_at partition id=transaction_id")


@client_command(app, "list", columns=_QUEUES, empty="There are no queues.")
async def list_queues(client: Client) -> Any:
    """List queues and their message counts."""
    return await client.queues.all()


@client_command(app, columns=_LEASES, empty="There are no leases.")
async def leases(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Only leases of this queue.")] = None,
    within: Annotated[int | None, opt("Only leases that expire within this many seconds.")] = None,
    limit: Limit = 100,
) -> Any:
    """List live leases, the next to expire first."""
    return await client.queues.leases(queue, ending_within=within, limit=limit)


@client_command(app)
async def show(client: Client, queue: QueueName) -> Output:
    """Show a queue and its partitions."""
    detail = await _detail(client, queue)
    if detail is None:
        raise await missing_queue(client, queue)

    def printed() -> None:
        rows = [(part.name, *_counts(part.stats), format_time(part.newest_message)) for part in detail.partitions]
        if detail.next is not None:
            echo(f"Showing the first {len(rows)} partitions; the last row counts all.")
        columns = ("partition", "pending", "leased", "finished", "dead", "stored", "last message")
        print_table(columns, [*rows, ("all", *_counts(detail.totals), "")], empty="")

    return Output(detail, printed)


@client_command(app)
async def create(
    client: Client,
    queue: QueueName,
    lease_seconds: Annotated[int | None, opt("Seconds that a consumer may hold a message.")] = None,
    retry_limit: Annotated[int | None, opt("Number of retries after a failed attempt.")] = None,
    retry_delay_ms: Annotated[int | None, opt("Delay before the first retry; it doubles with each retry.")] = None,
    max_size: Annotated[int | None, opt("Maximum number of messages; 0 for no limit.")] = None,
    option: Annotated[
        tuple[str, ...], opt("Any other queue option. Can be repeated.", "--set", metavar="NAME=VALUE")
    ] = (),
    replace: Annotated[bool, opt("Replace all options if the queue exists.", "--replace")] = False,
) -> Output:
    """Create a queue. A push also creates its queue, with default options."""
    given = {
        "lease_seconds": lease_seconds,
        "retry_limit": retry_limit,
        "retry_delay_ms": retry_delay_ms,
        "max_size": max_size,
    }
    options = {name: value for name, value in given.items() if value is not None} | _parse_options(option)
    if not replace and await _detail(client, queue) is not None:
        raise AlreadyExists(
            f"queue {queue!r} already exists; `fairlane queue set` changes options, --replace replaces all of them"
        )
    configured = await client.queues.configure(queue, **options)
    text = f"Queue {queue} is ready."
    if not (configured.retention_enabled and (configured.retention_seconds or configured.completed_retention_seconds)):
        rule = "retention_enabled=true completed_retention_seconds=86400"
        text += f" Its messages are kept. To delete finished ones after a day: fairlane queue set {queue} {rule}"
    return Output({"queue": queue, "options": msgspec.structs.asdict(configured)}, text)


@client_command(app, "set")
async def set_options(
    client: Client, queue: QueueName, option: Annotated[tuple[str, ...], arg("NAME=VALUE", "Options to set.")]
) -> Output:
    """Change options of a queue. Other options keep their values."""
    configured = await client.queues.set_options(queue, **_parse_options(option))
    shown = {"queue": queue, "options": msgspec.structs.asdict(configured)}
    return Output(shown, f"Set {', '.join(option)} on queue {queue}.")


@client_command(app)
async def clear(
    client: Client,
    queue: QueueName,
    partition: Annotated[str | None, opt("Only messages of this partition.", "--partition", "-p")] = None,
    yes: Yes = False,
) -> Output:
    """Delete every message of a queue. The queue and its consumer groups stay."""
    what = f"queue {queue}" if partition is None else f"partition {partition} of {queue}"
    await check_queue(client, queue)
    confirm(f"Delete every message of {what}?", yes)
    cleared = await client.queues.clear(queue, partition=partition)
    shown = {"queue": queue, "partition": partition, "cleared": cleared}
    return Output(shown, f"{plural(cleared, 'message')} deleted from {what}.")


@client_command(app)
async def pause(client: Client, queue: QueueName, group: Group = None, partition: Partition = None) -> Output:
    """Pause the delivery of a queue, or of one group or partition of it.

    Pushes continue.
    """
    await client.pauses.pause(queue, group=group, partition=partition)
    shown = {"queue": queue, "group": group, "partition": partition, "paused": True}
    return Output(shown, f"{_part(queue, group, partition)} is paused.")


@client_command(app)
async def resume(
    client: Client,
    queue: QueueName,
    group: Group = None,
    partition: Partition = None,
    lanes: Annotated[bool, opt("Resume all blocked and parked lanes of the group.", "--lanes")] = False,
    skip: Annotated[
        bool,
        opt("Dead-letter the message that stops a lane before resuming it; all lanes without --partition.", "--skip"),
    ] = False,
) -> Output:
    """Resume the delivery of a queue, or of one group or partition of it.

    With --group and --partition, or with --lanes, also resumes blocked and parked lanes.
    """
    if skip:
        skipped = await client.pauses.skip(queue, group or QUEUE_MODE, partition=partition)
        rest = "its lane goes on" if skipped == 1 else "their lanes go on"
        text = f"{plural(skipped, 'message')} of {queue} skipped: {rest}."
        return Output({"queue": queue, "group": group, "partition": partition, "skipped": skipped}, text)
    if lanes:
        resumed = await client.pauses.resume_lanes(queue, group or QUEUE_MODE)
        text = f"{plural(resumed, 'lane')} of {queue} resumed."
    else:
        resumed = int(await client.pauses.resume(queue, group=group, partition=partition))
        text = f"{_part(queue, group, partition)} {'is resumed.' if resumed else 'was not paused.'}"
    return Output({"queue": queue, "group": group, "partition": partition, "resumed": resumed}, text)


@client_command(app)
async def explain(
    client: Client,
    queue: QueueName,
    partition: Annotated[str, arg("PARTITION", "Name of the partition.")],
    group: Group = None,
) -> Output:
    """Explain why a partition is not being delivered, and print the commands that help."""
    explained = await client.pauses.explain(queue, partition, group or QUEUE_MODE)
    lines = [explained.sentence, *(f"  {command}" for command in _remedies(explained))]
    return Output(explained, "\n".join(lines))


@client_command(app, columns=_LANES, empty="No lane matches.")
async def lanes(
    client: Client,
    queue: QueueName,
    group: Group = None,
    state: Annotated[
        Literal["finished", "leased", "waiting", "delayed", "failed", "blocked", "parked", "paused", "unfinished"]
        | None,
        opt("Only lanes in this state; unfinished is every state except finished."),
    ] = None,
    search: Annotated[str | None, opt("Only partitions whose name contains this text.")] = None,
    limit: Limit = 100,
) -> Any:
    """List the lanes of a group: its partitions with their state and their next message."""
    return await client.pauses.lanes(queue, group or QUEUE_MODE, state=state, search=search, limit=limit)


@client_command(app)
async def history(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Name of the queue; all queues together by default.")] = None,
    group: Group = None,
    minutes: Annotated[int, opt("Length of the time range, up to 43200 (30 days).")] = 60,
) -> Output:
    """Show messages per second, depth and age over time, the newest last."""
    found = await client.history.show(queue, group=group, minutes=minutes)
    times = [found.since + index * found.step_seconds * 1_000_000 for index in range(len(found.pushed))]
    parts = (found.pushed, found.popped, found.acked, found.failed, found.dead, found.depth, found.oldest_seconds)
    rows = [
        (format_time(at), *["" if one is None else one for one in row])
        for at, *row in zip(times, *parts, *([found.lag] if group else []), strict=True)
        if row[0] is not None
    ]
    columns = ("from", "pushed/s", "popped/s", "acked/s", "failed/s", "dead/s", "waiting", "oldest s")
    empty = "Nothing is known about this time yet."
    return Output(found, lambda: print_table((*columns, *(["lag"] if group else [])), rows, empty=empty))


@client_command(app, columns=_SCHEDULED, rows="messages", empty="There are no scheduled messages.")
async def scheduled(client: Client, queue: QueueName) -> Any:
    """List scheduled messages, the next to be delivered first."""
    return await client.scheduled.page(queue)


@client_command(app)
async def cancel(
    client: Client,
    queue: QueueName,
    id: Annotated[str, arg("ID", "The transactionId of the message.")],
    partition: Annotated[str, opt("Partition of the message.", "--partition", "-p")] = DEFAULT_PARTITION,
) -> Output:
    """Cancel a scheduled message."""
    if not await client.scheduled.cancel(queue, id, partition=partition):
        raise NotFound(f"no message {id!r} is scheduled in partition {partition!r} of {queue!r}")
    shown = {"queue": queue, "partition": partition, "id": id, "cancelled": True}
    return Output(shown, f"Cancelled message {id} of {queue}.")


@client_command(app)
async def delete(client: Client, queue: QueueName, yes: Yes = False) -> Output:
    """Delete a queue and its messages."""
    await check_queue(client, queue)
    confirm(f"Delete queue {queue} and every message in it?", yes)
    if not await client.queues.delete(queue):
        raise await missing_queue(client, queue)
    return Output({"queue": queue, "deleted": True}, f"Deleted queue {queue}.")


def _remedies(explained: Explained) -> list[str]:
    """Return commands that may get a lane moving, ready to copy."""
    lane = [explained.queue, "--partition", explained.partition]
    own = [] if explained.group == QUEUE_MODE else ["--group", explained.group]
    found: list[list[str]] = []
    if explained.reason in ("blocked", "parked"):
        found.append(["queue", "resume", *lane, "--group", explained.group])
    if explained.reason in ("blocked", "parked") and explained.attempts:
        found.append(["queue", "resume", *lane, *own, "--skip"])
    if explained.transaction_id and explained.partition_id:
        found.append(["message", "show", explained.partition_id, explained.transaction_id])
    if explained.reason == "paused":
        found += [["queue", "resume", *rest] for rest in _paused(explained)]
    return [shlex.join(["fairlane", *command]) for command in found]


def _paused(explained: Explained) -> list[list[str]]:
    """Return the arguments that select what a pause covers. `sentence` begins with its kind."""
    lane, kind = ["--partition", explained.partition], explained.sentence.split(" ", 2)[1]
    more = {"queue": [], "group": ["--group", explained.group], "partition": lane}.get(kind)
    return [] if more is None else [[explained.queue, *more]]


def _part(queue: str, group: str | None, partition: str | None) -> str:
    part = f"Queue {queue}" if partition is None else f"Partition {partition} of {queue}"
    return part if group is None else f"{part} for group {group}"


async def _detail(client: Client, queue: str) -> QueueDetail | None:
    try:
        return await client.queues.show(queue)
    except NotFound:
        return None


def _parse_options(settings: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs as queue options. Accepts the names of the API, too."""
    from fairlane.wire.queues import OPTION_NAMES, camel

    names = {one: name for name, wire in OPTION_NAMES.items() for one in (name, wire, camel(name))}
    texts: dict[str, str] = {}
    for setting in settings:
        given, equals, value = setting.partition("=")
        name = names.get(given.strip().replace("-", "_"))
        if name is None:
            close = difflib.get_close_matches(given, names, n=1)
            known = (
                f"did you mean {names[close[0]]}?"
                if close
                else f"write one of {', '.join(QueueOptions.__struct_fields__)}"
            )
            raise InvalidRequest(f"{given!r} is not a queue option; {known}")
        if not equals:
            raise InvalidRequest(f"{setting!r} has no value; write {name}=VALUE")
        if name in texts:
            raise InvalidRequest(f"{setting!r} sets {name} a second time; set it once")
        texts[name] = value.strip()
    try:
        options = msgspec.convert(texts, QueueOptions, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"--set: {error}") from None
    return {name: getattr(options, name) for name in texts}


def _counts(counts: Counts) -> tuple[int, ...]:
    return counts.pending, counts.processing, counts.completed, counts.dead_letter, counts.total
