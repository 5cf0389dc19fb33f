"""`fairlane grant-enqueue`: database roles that may enqueue messages in their own transactions."""

from __future__ import annotations

from typing import Annotated

from fairlane.cli.toolkit.command import Client, CommandGroup, Output, arg, client_command, columns_of, opt, print_rows
from fairlane.errors import InvalidRequest

app = CommandGroup()

_COLUMNS = columns_of("role queue", queue=lambda one: one.queue or "(every queue)")


@client_command(app, "grant-enqueue")
async def grant_enqueue(
    client: Client,
    role: Annotated[str | None, arg("ROLE", "Role of the database. Without it, the grants are listed.")] = None,
    queue: Annotated[str | None, opt("Queue that the role may use. The default is every queue.")] = None,
    revoke: Annotated[bool, opt("Revoke the grant.", "--revoke")] = False,
) -> Output:
    """Allow a role of the PostgreSQL database to enqueue and complete messages in its own transactions.

    The role may then call fairlane.enqueue and fairlane.complete for this queue, and nothing else of the broker.
    """
    where = "every queue" if queue is None else f"queue {queue}"
    if role is None:
        if queue is not None or revoke:
            raise InvalidRequest("name the role: fairlane grant-enqueue ROLE")
        grants = await client.staged.grants()
        return Output(grants, lambda: print_rows(_COLUMNS, grants, empty="No role may enqueue."))
    if revoke:
        revoked = await client.staged.revoke(role, queue)
        text = f"Role {role} may no longer enqueue into {where}." if revoked else f"Role {role} had no such grant."
        return Output({"role": role, "queue": queue, "revoked": revoked}, text, 0 if revoked else 1)
    return Output(await client.staged.grant(role, queue), f"Role {role} may enqueue into {where}.")
