"""`fairlane queue ...`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table, shown_time
from fairlane.errors import AlreadyExists, InvalidRequest, NotFound
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE
from fairlane.model.queue import QueueOptions

if TYPE_CHECKING:
    from fairlane.blocking import Client
    from fairlane.client import Counts, QueueDetail

app = typer.Typer(help="List, show, create, set, pause, explain, clear and delete queues.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)]


@app.command("list")
def list_queues(server: Server = DEFAULT, json: AsJson = False) -> None:
    """List the queues."""
    with connected(server) as client:
        queues = client.queues()
    if json:
        print_json(queues)
        return
    rows = [
        (queue.name, queue.partitions, queue.messages.pending, queue.messages.processing, queue.messages.total)
        for queue in queues
    ]
    print_table(("queue", "partitions", "pending", "leased", "stored"), rows, empty="There are no queues.")


@app.command()
def leases(
    queue: Annotated[str | None, typer.Argument(metavar="QUEUE", help="Of this queue.", show_default=False)] = None,
    within: Annotated[int | None, typer.Option(help="That end in so many seconds.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.")] = 100,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """List live leases, the next to end first."""
    with connected(server) as client:
        found = client.leases(queue, ending_within=within, limit=limit)
    if json:
        print_json(found)
        return
    rows = [
        (
            one.queue,
            one.partition,
            one.consumer_group,
            f"{one.completed}/{one.messages}",
            f"{one.seconds_held:.0f} s",
            f"{one.seconds_remaining:.0f} s",
        )
        for one in found
    ]
    print_table(("queue", "partition", "group", "done", "held", "left"), rows, empty="Nobody holds a lease.")


@app.command()
def show(queue: Name, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Show a queue and its partitions."""
    with connected(server) as client:
        detail = _found(client, queue)
    if detail is None:
        raise NotFound(f"there is no queue {queue!r}")
    if json:
        print_json(detail)
        return
    rows = [
        (partition.name, *_counts(partition.stats), shown_time(partition.newest_message))
        for partition in detail.partitions
    ]
    if detail.next is not None:
        echo(f"Of its partitions the first {len(rows)}; the last row counts all.")
    columns = ("partition", "pending", "leased", "finished", "dead", "stored", "last message")
    print_table(columns, [*rows, ("all", *_counts(detail.totals), "")], empty="")


@app.command()
def create(
    queue: Name,
    lease_seconds: Annotated[int | None, typer.Option(help="How long a consumer may keep a message.")] = None,
    retry_limit: Annotated[int | None, typer.Option(help="Failed attempts that are followed by another.")] = None,
    retry_delay_ms: Annotated[int | None, typer.Option(help="Sleep after the first failure; doubles.")] = None,
    max_size: Annotated[int | None, typer.Option(help="Messages it holds at most; 0 for no limit.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other option, by its name.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the options of one that is there.")] = False,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Create a queue. A push creates one too, with the default options."""
    given = {
        "lease_seconds": lease_seconds,
        "retry_limit": retry_limit,
        "retry_delay_ms": retry_delay_ms,
        "max_size": max_size,
    }
    options = {name: value for name, value in given.items() if value is not None} | _options(option or [])
    with connected(server) as client:
        if not replace and _found(client, queue) is not None:
            raise AlreadyExists(
                f"queue {queue!r} is there already; `fairlane queue set` changes some options, --replace sets all anew"
            )
        configured = client.configure(queue, **options)
    if json:
        print_json({"queue": queue, "options": msgspec.structs.asdict(configured)})
    else:
        echo(f"Queue {queue} is there.")


@app.command("set")
def set_options(
    queue: Name,
    option: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Options, by their names.", show_default=False)
    ],
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Change some options of a queue; the others stay as they are."""
    with connected(server) as client:
        configured = client.set_options(queue, **_options(option))
    if json:
        print_json({"queue": queue, "options": msgspec.structs.asdict(configured)})
    else:
        echo(f"Queue {queue} has {', '.join(option)}.")


@app.command()
def clear(
    queue: Name,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="Only of this partition.", show_default=False)
    ] = None,
    yes: Yes = False,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Take every message out of a queue, read or not. The queue and its groups stay."""
    what = f"queue {queue}" if partition is None else f"partition {partition} of {queue}"
    confirm(f"Take every message out of {what}?", yes)
    with connected(server) as client:
        cleared = client.clear(queue, partition=partition)
    if json:
        print_json({"queue": queue, "partition": partition, "cleared": cleared})
    else:
        echo(f"{cleared} {'message' if cleared == 1 else 'messages'} taken out of {what}.")


Group = Annotated[str | None, typer.Option(help="Only this group.", show_default=False)]
Partition = Annotated[str | None, typer.Option(help="Only this partition.", show_default=False)]


@app.command()
def pause(
    queue: Name, group: Group = None, partition: Partition = None, server: Server = DEFAULT, json: AsJson = False
) -> None:
    """Hand out nothing more of a queue.

    With --group or --partition, of that part of it. Pushes go on."""
    with connected(server) as client:
        client.pause(queue, group=group, partition=partition)
    if json:
        print_json({"queue": queue, "group": group, "partition": partition, "paused": True})
    else:
        echo(f"{_part(queue, group, partition)} is paused.")


@app.command()
def resume(
    queue: Name,
    group: Group = None,
    partition: Partition = None,
    lanes: Annotated[bool, typer.Option("--lanes", help="All blocked and parked lanes of the group.")] = False,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Hand out again what was paused.

    With --group and --partition, or with --lanes, also what is blocked or parked."""
    with connected(server) as client:
        if lanes:
            resumed = client.resume_lanes(queue, group or QUEUE_MODE)
        else:
            resumed = int(client.resume(queue, group=group, partition=partition))
    if json:
        print_json({"queue": queue, "group": group, "partition": partition, "resumed": resumed})
    elif lanes:
        echo(f"{resumed} {'lane' if resumed == 1 else 'lanes'} of {queue} resumed.")
    else:
        echo(f"{_part(queue, group, partition)} {'goes on.' if resumed else 'was not paused.'}")


@app.command()
def explain(
    queue: Name,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Name of the partition.", show_default=False)],
    group: Group = None,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Say why a partition does not move."""
    with connected(server) as client:
        explained = client.explain(queue, partition, group or QUEUE_MODE)
    if json:
        print_json(explained)
    else:
        echo(explained.sentence)


@app.command()
def scheduled(queue: Name, server: Server = DEFAULT, json: AsJson = False) -> None:
    """List the next messages that wait for their time."""
    with connected(server) as client:
        page = client.scheduled(queue)
    if json:
        print_json(page)
        return
    rows = [(shown_time(one.deliver_at), one.partition, one.transaction_id) for one in page.messages]
    print_table(("due", "partition", "id"), rows, empty="Nothing waits for its time.")


@app.command()
def cancel(
    queue: Name,
    id: Annotated[str, typer.Argument(metavar="ID", help="Its transactionId.", show_default=False)],
    partition: Annotated[str, typer.Option("--partition", "-p", help="Its lane.")] = DEFAULT_PARTITION,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Forget a message that waits for its time."""
    with connected(server) as client:
        cancelled = client.cancel(queue, id, partition=partition)
    if not cancelled:
        raise NotFound(f"no message {id!r} waits in partition {partition!r} of {queue!r}")
    if json:
        print_json({"queue": queue, "partition": partition, "id": id, "cancelled": True})
    else:
        echo(f"Message {id} of {queue} will not come.")


def _part(queue: str, group: str | None, partition: str | None) -> str:
    part = f"Queue {queue}" if partition is None else f"Partition {partition} of {queue}"
    return part if group is None else f"{part} for group {group}"


@app.command()
def delete(queue: Name, yes: Yes = False, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Delete a queue with all that is in it."""
    confirm(f"Delete queue {queue} and every message in it?", yes)
    with connected(server) as client:
        existed = client.delete_queue(queue)
    if not existed:
        raise NotFound(f"there is no queue {queue!r}")
    if json:
        print_json({"queue": queue, "deleted": True})
    else:
        echo(f"Queue {queue} is gone.")


def _found(client: Client, queue: str) -> QueueDetail | None:
    try:
        return client.queue(queue)
    except NotFound:
        return None


def _options(settings: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs as queue options, each as the type it has."""
    texts: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in QueueOptions.__struct_fields__:
            known = ", ".join(QueueOptions.__struct_fields__)
            raise InvalidRequest(f"{setting!r} sets no option of a queue; write NAME=VALUE with one of {known}")
        texts[name] = value.strip()
    try:
        options = msgspec.convert(texts, QueueOptions, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"--set: {error}") from None
    return {name: getattr(options, name) for name in texts}


def _counts(counts: Counts) -> tuple[int, ...]:
    return counts.pending, counts.processing, counts.completed, counts.dead_letter, counts.total
