"""`fairlane finding`: list health findings, and snooze them."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any

from fairlane.cli.toolkit.command import Client, CommandGroup, Output, arg, client_command, columns_of, opt
from fairlane.cli.toolkit.output import time_cell
from fairlane.runtime.durations import seconds_in
from fairlane.wire.monitoring import Finding

app = CommandGroup("finding")

Key = Annotated[str, arg("KEY", "Key of the finding, from `fairlane finding list`.")]
_COLUMNS = columns_of(
    "severity sentence since snoozed_until key",
    since=time_cell(attrgetter("since")),
    snoozed_until=time_cell(attrgetter("snoozed_until")),
)


@client_command(app, "list", columns=_COLUMNS, empty="There are no findings.")
async def list_findings(client: Client) -> Any:
    """List problems that need attention, most severe first, also those that are snoozed."""
    return await client.findings.all()


@client_command(app)
async def snooze(
    client: Client,
    key: Key,
    duration: Annotated[
        str | None,
        opt(
            "Duration, such as 1h or 8h. By default until the finding changes, at most a week.", "--for", metavar="TIME"
        ),
    ] = None,
) -> Output:
    """Snooze a finding, so that it is folded on the dashboard and not counted by `fairlane status`.

    A finding changes when it ends, becomes more severe, or its count doubles.
    """
    found: Finding = await client.findings.snooze(key, seconds=None if duration is None else seconds_in(duration))
    assert found.snoozed_until is not None
    until = "until it changes, at the latest at" if duration is None else "until"
    return Output(found, f"Snoozed {until} {found.snoozed_until.isoformat()}: {found.sentence}")


@client_command(app)
async def unsnooze(client: Client, key: Key) -> Output:
    """End the snooze of a finding."""
    ended = await client.findings.unsnooze(key)
    text = f"{key} is no longer snoozed." if ended else f"{key} was not snoozed."
    return Output({"key": key, "deleted": ended}, text, 0 if ended else 1)
