"""`fairlane schedule ...`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec

from fairlane.cli.output import confirm, print_table, shown_time
from fairlane.cli.verb import Client, Noun, Shown, Yes, arg, columns_of, opt, print_facts, verb
from fairlane.errors import InvalidRequest
from fairlane.wire.schedules import Missed, Schedule

app = Noun("schedule")

Name = Annotated[str, arg("NAME", "Name of the schedule.")]


def _when(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.timezone})"
    return f"every {schedule.every_seconds} s"


_COLUMNS = columns_of(
    "name queue when missed next refused",
    when=_when,
    next=lambda one: "paused" if one.next_at is None else shown_time(one.next_at),
)
_SHOWN = columns_of("name queue partition when missed paused=paused_at refused", when=_when)


@verb(app, "list", columns=_COLUMNS, empty="There are no schedules.")
async def list_schedules(client: Client) -> Any:
    """List the schedules and their next ticks."""
    return await client.schedules.list()


@verb(app)
async def show(client: Client, name: Name) -> Shown:
    """Show one schedule and its next runs."""
    schedule = await client.schedules.get(name)

    def printed() -> None:
        print_facts(_SHOWN, schedule)
        sys.stdout.write("\n")
        print_table(("next runs",), [(shown_time(at),) for at in schedule.next_runs], empty="It is paused.")

    return Shown(schedule, printed)


@verb(app, "set")
async def define(
    client: Client,
    name: Name,
    queue: Annotated[str, arg("QUEUE", "Where it pushes.")],
    data: Annotated[str | None, arg("DATA", "JSON; the tick if there is none.")] = None,
    every: Annotated[str | None, opt("An interval like 30s, 5m or 1h30m.")] = None,
    cron: Annotated[str | None, opt('Like "0 9 * * MON": minute, hour, day, month, weekday.')] = None,
    timezone: Annotated[str, opt("Whose clocks --cron goes by.")] = "UTC",
    missed: Annotated[Missed, opt("Ticks while no broker ran.")] = "once",
    partition: Annotated[str, opt("Of the queue.")] = "Default",
) -> Shown:
    """Define a schedule, or replace it."""
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
        data=payload,
        partition=partition,
    )
    return Shown(schedule, _next(schedule))


@verb(app)
async def pause(client: Client, name: Name) -> Shown:
    """Let a schedule tick no more until it is resumed."""
    return Shown(await client.schedules.pause(name), f"Schedule {name} is paused.")


@verb(app)
async def resume(client: Client, name: Name) -> Shown:
    """Let a paused schedule go on with its next tick."""
    schedule = await client.schedules.resume(name)
    return Shown(schedule, _next(schedule))


@verb(app)
async def run(client: Client, name: Name) -> Shown:
    """Push the message of a schedule once, now."""
    return Shown(await client.schedules.run(name), f"Schedule {name} has run.")


@verb(app)
async def delete(client: Client, name: Name, yes: Yes = False) -> Shown:
    """Forget a schedule; what it pushed stays."""
    confirm(f"Delete schedule {name}?", yes)
    deleted = await client.schedules.delete(name)
    text = f"Schedule {name} is gone." if deleted else f"There is no schedule {name}."
    return Shown({"name": name, "deleted": deleted}, text, 0 if deleted else 1)


def _next(schedule: Schedule) -> str:
    return f"Schedule {schedule.name} ticks next at {shown_time(schedule.next_at)}."
