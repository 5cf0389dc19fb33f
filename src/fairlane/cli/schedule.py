"""`fairlane schedule ...`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table, shown_time
from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from fairlane.wire.schedules import Schedule

app = typer.Typer(
    help="Define, list, pause and run schedules, which push a message at every tick.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.", show_default=False)]


@app.command("list")
def list_schedules(server: Server = DEFAULT, json: AsJson = False) -> None:
    """List the schedules and their next ticks."""
    with connected(server) as client:
        schedules = client.schedules()
    if json:
        print_json(schedules)
        return
    rows = [
        (one.name, one.queue, _when(one), one.missed, "paused" if one.next_at is None else shown_time(one.next_at))
        for one in schedules
    ]
    print_table(("name", "queue", "when", "missed", "next"), rows, empty="There are no schedules.")


@app.command()
def show(name: Name, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Show one schedule and its next runs."""
    with connected(server) as client:
        schedule = client.schedule(name)
    if json:
        print_json(schedule)
        return
    print_table(
        ("name", "queue", "partition", "when", "missed", "paused"),
        [
            (
                schedule.name,
                schedule.queue,
                schedule.partition,
                _when(schedule),
                schedule.missed,
                shown_time(schedule.paused_at),
            )
        ],
        empty="",
    )
    print_table(("next runs",), [(shown_time(at),) for at in schedule.next_runs], empty="It is paused.")


@app.command("set")
def define(
    name: Name,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Where it pushes.", show_default=False)],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="JSON; the tick if there is none.", show_default=False)
    ] = None,
    every: Annotated[str | None, typer.Option(help="An interval like 30s, 5m or 1h30m.", show_default=False)] = None,
    cron: Annotated[
        str | None, typer.Option(help='Like "0 9 * * MON": minute, hour, day, month, weekday.', show_default=False)
    ] = None,
    timezone: Annotated[str, typer.Option(help="Whose clocks --cron goes by.")] = "UTC",
    missed: Annotated[str, typer.Option(help="Ticks while no broker ran: skip, once or all.")] = "once",
    partition: Annotated[str, typer.Option(help="Of the queue.")] = "Default",
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Define a schedule, or replace it."""
    import msgspec

    if missed not in ("skip", "once", "all"):
        raise InvalidRequest(f"--missed is {missed!r}; it must be skip, once or all")
    try:
        payload = None if data is None else msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"DATA is not JSON: {error}") from None
    with connected(server) as client:
        schedule = client.define_schedule(
            name,
            queue,
            every=every,
            cron=cron,
            timezone=timezone,
            missed=cast(Any, missed),
            data=payload,
            partition=partition,
        )
    if json:
        print_json(schedule)
    else:
        echo(f"Schedule {name} ticks next at {shown_time(schedule.next_at)}.")


@app.command()
def pause(name: Name, server: Server = DEFAULT) -> None:
    """Let a schedule tick no more until it is resumed."""
    with connected(server) as client:
        client.pause_schedule(name)
    echo(f"Schedule {name} is paused.")


@app.command()
def resume(name: Name, server: Server = DEFAULT) -> None:
    """Let a paused schedule go on with its next tick."""
    with connected(server) as client:
        schedule = client.resume_schedule(name)
    echo(f"Schedule {name} ticks next at {shown_time(schedule.next_at)}.")


@app.command()
def run(name: Name, server: Server = DEFAULT) -> None:
    """Push the message of a schedule once, now."""
    with connected(server) as client:
        client.run_schedule(name)
    echo(f"Schedule {name} has run.")


@app.command()
def delete(name: Name, yes: Yes = False, server: Server = DEFAULT) -> None:
    """Forget a schedule; what it pushed stays."""
    confirm(f"Delete schedule {name}?", yes)
    with connected(server) as client:
        deleted = client.delete_schedule(name)
    echo(f"Schedule {name} is gone." if deleted else f"There is no schedule {name}.")


def _when(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.timezone})"
    return f"every {schedule.every_seconds} s"
