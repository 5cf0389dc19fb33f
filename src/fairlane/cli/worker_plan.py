"""`fairlane worker MODULE:APP --plan` and `--apply`: what an app declares, beside what the broker has."""

from __future__ import annotations

from fairlane.cli.output import counted, echo, print_table
from fairlane.client.client import Client
from fairlane.worker.app import CONCURRENCY, App, Handler
from fairlane.worker.binding import check_parameters
from fairlane.worker.plan import Change, apply_changes, changes

_CHANGES = ("queue", "option", "is", "declared")


async def show(app: App, servers: list[str], queues: list[str] | None) -> None:
    """Print the handlers, and options of queues that are not as declared."""
    subscriptions = app.subscriptions(queues)
    check_parameters(app, subscriptions)
    handlers = [one for each in subscriptions for one in each.handlers.values()]
    columns = ("queue", "group", "handler", "type", "at once", "time limit", "attempts", "backoff")
    print_table(columns, [_row(one) for one in handlers], empty="")
    async with Client(servers) as client:
        found = await changes(app, client, queues)
    echo("--apply would set:" if found else "Every queue is as declared.")
    if found:
        print_table(_CHANGES, [_cells(one) for one in found], empty="")


async def apply(app: App, servers: list[str], queues: list[str] | None) -> None:
    """Set the options that are not as declared, and say which."""
    check_parameters(app, app.subscriptions(queues))
    async with Client(servers) as client:
        found = await changes(app, client, queues)
        await apply_changes(client, found)
    if found:
        echo(f"{counted(len(found), 'option')} set.")
        print_table(_CHANGES, [_cells(one) for one in found], empty="")


def _row(one: Handler) -> tuple[object, ...]:
    backoff = None if one.backoff is None else f"{one.backoff:g} s, at most {one.backoff_max:g} s"
    limit = None if one.timeout is None else f"{one.timeout:g} s"
    at_once = one.concurrency or (1 if one.kind == "batch" else CONCURRENCY)
    return one.queue, one.group, one.name, one.type, at_once, limit, one.max_attempts, backoff


def _cells(change: Change) -> tuple[object, ...]:
    return change.queue, change.option, change.before, change.after
