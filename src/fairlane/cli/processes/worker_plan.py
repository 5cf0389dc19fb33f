"""`fairlane worker --plan` and `--apply`: queue options that an app declares, compared with the broker's."""

from __future__ import annotations

from fairlane.cli.toolkit.output import echo, plural, print_table
from fairlane.client.client import Client
from fairlane.worker.app import CONCURRENCY, App, Handler
from fairlane.worker.binding import check_parameters
from fairlane.worker.queue_plan import OptionChange, apply_option_changes, option_changes

_CHANGES = ("queue", "option", "is", "declared")


async def show(app: App, servers: list[str], queues: list[str] | None) -> None:
    """Print the handlers, and the queue options that differ from their declaration."""
    handler_groups = app.handler_groups(queues)
    check_parameters(app, handler_groups)
    handlers = [one for each in handler_groups for one in each.handlers.values()]
    columns = ("queue", "group", "handler", "type", "at once", "time limit", "attempts", "backoff")
    print_table(columns, [_row(one) for one in handlers], empty="")
    async with Client(servers) as client:
        found = await option_changes(app, client, queues)
    echo("--apply would set:" if found else "Every queue has the declared options.")
    if found:
        print_table(_CHANGES, [_cells(one) for one in found], empty="")


async def apply(app: App, servers: list[str], queues: list[str] | None) -> None:
    """Set the queue options that differ from their declaration, and print them."""
    check_parameters(app, app.handler_groups(queues))
    async with Client(servers) as client:
        found = await option_changes(app, client, queues)
        await apply_option_changes(client, found)
    if found:
        echo(f"{plural(len(found), 'option')} set.")
        print_table(_CHANGES, [_cells(one) for one in found], empty="")


def _row(one: Handler) -> tuple[object, ...]:
    backoff = None if one.backoff is None else f"{one.backoff:g} s, at most {one.backoff_max:g} s"
    limit = None if one.timeout is None else f"{one.timeout:g} s"
    at_once = one.concurrency or (1 if one.kind == "batch" else CONCURRENCY)
    return one.queue, one.group, one.name, one.type, at_once, limit, one.max_attempts, backoff


def _cells(change: OptionChange) -> tuple[object, ...]:
    return change.queue, change.option, change.before, change.after
