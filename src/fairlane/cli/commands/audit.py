"""`fairlane audit`: list and verify the audit log."""

from __future__ import annotations

from typing import Annotated, Any

import click

from fairlane.cli.toolkit.command import Client, CommandGroup, Limit, Output, client_command, columns_of, opt

app = CommandGroup("audit")

_COLUMNS = columns_of("number when=at caller action target outcome source")


@client_command(app, "list", columns=_COLUMNS, empty="The audit log is empty.")
async def list_entries(
    client: Client,
    before: Annotated[int | None, opt("List only entries with a lower number.", type=click.IntRange(1))] = None,
    limit: Limit = 100,
    search: Annotated[str | None, opt("List only entries whose caller, action or target contains this text.")] = None,
) -> Any:
    """List administrative actions and refused requests, newest first."""
    return await client.audit.page(before=before, limit=limit, search=search)


@client_command(app)
async def verify(client: Client) -> Output:
    """Check that no audit log entry was changed or is missing. Exits 1 if one was.

    Recomputes the hash chain of the log.
    """
    found = await client.audit.verify()
    if not found.whole:
        return Output(found, f"The audit log was changed: {found.error}.", 1)
    text = f"Verified {found.entries} entries, {found.first} to {found.last}. The last hash is "
    return Output(found, f"{text}{found.head}." if found.entries else "The audit log is empty.")
