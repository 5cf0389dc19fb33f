"""`fairlane fan-in`: show the progress of fan-ins, and delete them."""

from __future__ import annotations

import sys
from typing import Annotated, Any

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
from fairlane.cli.toolkit.output import confirm, print_table

app = CommandGroup("fan-in")

Id = Annotated[str, arg("ID", "Id of the fan-in.")]
Limit = Annotated[int, opt("Show at most this many.")]
_COLUMNS = columns_of("id status total open completed failed callback=queue created=created_at")
_FIELDS = columns_of(
    "id status total open completed failed callback=queue group=consumer_group created=created_at "
    "ended=ended_at refused=error"
)
_PARTS = columns_of("part status queue partition transaction_id error")


@client_command(app, "list", columns=_COLUMNS, empty="There are no fan-ins.")
async def list_fan_ins(client: Client, limit: Limit = 20) -> Any:
    """List the newest fan-ins and the progress of their parts."""
    return await client.fan_ins.all(limit=limit)


@client_command(app)
async def show(client: Client, id: Id, limit: Limit = 20) -> Output:
    """Show the progress of a fan-in, and its first parts."""
    found = await client.fan_ins.get(id, limit=limit)

    def printed() -> None:
        print_fields(_FIELDS, found)
        sys.stdout.write("\n")
        rows = [tuple(read(part) for read in _PARTS.values()) for part in found.parts]
        print_table(tuple(_PARTS), rows, empty="The fan-in has no parts.")

    return Output(found, printed)


@client_command(app)
async def delete(client: Client, id: Id, yes: Yes = False) -> Output:
    """Delete a fan-in, so that its callback is not pushed. Its messages stay."""
    confirm(f"Delete fan-in {id}?", yes)
    return deleted("fan-in", id, await client.fan_ins.delete(id))
