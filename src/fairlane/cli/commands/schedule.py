"""`fairlane schedule`: manage schedules."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec

from fairlane.cli.toolkit.command import (
    Client,
    CommandGroup,
    Output,
    Yes,
    arg,
    client_command,
    columns_of,
    deleted,
    opt,
    print_fields,
)
from fairlane.cli.toolkit.output import confirm, format_time, print_table
from fairlane.errors import InvalidRequest
from fairlane.model.unique import Unique
from fairlane.wire.schedules import Missed, Schedule

app = CommandGroup("schedule")

Name = Annotated[str, arg("NAME", "Name of the schedule.")]


def _when(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.timezone})"
    return f"every {schedule.every_seconds} s"


def _last(schedule: Schedule) -> str:
    run = schedule.last_run
    return "" if run is None else f"{format_time(run.at)} {run.status or 'not stored'}"


_COLUMNS = columns_of(
    "name queue when missed last next refused",
    when=_when,
    last=_last,
    next=lambda one: "paused" if one.next_at is None else format_time(one.next_at),
)
_FIELDS = columns_of("name queue partition when missed unique last paused=paused_at refused", when=_when, last=_last)


@client_command(app, "list", columns=_COLUMNS, empty="There are no schedules.")
async def list_schedules(client: Client) -> Any:
    """List schedules and their next runs."""
    return await client.schedules.all()


@client_command(app)
async def show(client: Client, name: Name) -> Output:
    """Show a schedule and its next runs."""
    schedule = await client.schedules.get(name)

    def printed() -> None:
        print_fields(_FIELDS, schedule)
        sys.stdout.write("\n")
        print_table(("next runs",), [(format_time(at),) for at in schedule.next_runs], empty="The schedule is paused.")

    return Output(schedule, printed)


@client_command(app, "set")
async def define(
    client: Client,
    name: Name,
    queue: Annotated[str, arg("QUEUE", "Queue to push to.")],
    data: Annotated[
        str | None, arg("DATA", "Payload as JSON; by default the schedule and the time of the run.")
    ] = None,
    every: Annotated[str | None, opt("Interval, like 30s, 5m or 1h30m.")] = None,
    cron: Annotated[str | None, opt('Cron expression, like "0 9 * * MON": minute, hour, day, month, weekday.')] = None,
    timezone: Annotated[str, opt("Time zone of --cron.")] = "UTC",
    missed: Annotated[Missed, opt("What to do with runs that were missed while no broker ran.")] = "once",
    unique: Annotated[
        Unique | None, opt("Skip a run while the message of an earlier run is waiting, or waiting or running.")
    ] = None,
    partition: Annotated[str, opt("Partition of the queue.")] = "Default",
) -> Output:
    """Create or replace a schedule."""
    try:
        payload = None if data is None else msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"DATA is not JSON: {error}") from None
    schedule = await client.schedules.define(
        name,
        queue,
        every=every,
        cron=cron,
        timezone=timezone,
        missed=missed,
        unique=unique,
        data=payload,
        partition=partition,
    )
    return Output(schedule, _next(schedule))


@client_command(app)
async def pause(client: Client, name: Name) -> Output:
    """Pause a schedule until it is resumed."""
    return Output(await client.schedules.pause(name), f"Paused schedule {name}.")


@client_command(app)
async def resume(client: Client, name: Name) -> Output:
    """Resume a paused schedule, starting with its next run."""
    schedule = await client.schedules.resume(name)
    return Output(schedule, _next(schedule))


@client_command(app)
async def run(client: Client, name: Name) -> Output:
    """Push the message of a schedule once now."""
    return Output(await client.schedules.run(name), f"Ran schedule {name}.")


@client_command(app)
async def delete(client: Client, name: Name, yes: Yes = False) -> Output:
    """Delete a schedule. The messages that it pushed stay."""
    confirm(f"Delete schedule {name}?", yes)
    return deleted("schedule", name, await client.schedules.delete(name))


def _next(schedule: Schedule) -> str:
    return f"Schedule {schedule.name} runs next at {format_time(schedule.next_at)}."
