"""`fairlane tenant`: manage tenants."""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
)
from fairlane.cli.toolkit.output import confirm
from fairlane.errors import InvalidRequest
from fairlane.model.tenant import Quotas
from fairlane.wire.keys import KeyOptions
from fairlane.wire.tenants import Tenant

app = CommandGroup("tenant")

Name = Annotated[str, arg("NAME", "Name of the tenant.")]
Limits = Annotated[
    tuple[str, ...], opt("A quota, such as queues=100 or bytes=1000000. Can be repeated.", metavar="NAME=NUMBER")
]


def _quotas(tenant: Tenant) -> str:
    return " ".join(f"{name}={maximum}" for name, maximum in msgspec.to_builtins(tenant.quotas).items())


_COLUMNS = columns_of(
    "name a_second share quotas created=created_at",
    a_second=lambda one: f"{one.pushed.messages_per_second:.1f}",
    share=lambda one: f"{one.pushed.share:.0%}",
    quotas=_quotas,
)
_SHOWN = columns_of(
    "name quotas used created=created_at",
    quotas=_quotas,
    used=lambda one: " ".join(f"{name}={count}" for name, count in msgspec.to_builtins(one.used).items()),
)


@client_command(app, "list", columns=_COLUMNS, empty="There are no tenants.")
async def list_tenants(client: Client) -> Any:
    """List tenants with the messages that they pushed in the last minute, and their quotas."""
    return await client.tenants.all()


@client_command(app, fields=_SHOWN)
async def show(
    client: Client, name: Annotated[str | None, arg("NAME", "Name of the tenant; your own by default.")] = None
) -> Any:
    """Show a tenant with its quotas and usage."""
    return await (client.tenants.own() if name is None else client.tenants.show(name))


@client_command(app)
async def create(client: Client, name: Name, quota: Limits = ()) -> Output:
    """Create a tenant."""
    return Output(
        await client.tenants.create(name, _parse_quotas(quota)),
        f"Created tenant {name}. `fairlane tenant key` makes its first key.",
    )


@client_command(app)
async def limit(client: Client, name: Name, quota: Limits = ()) -> Output:
    """Replace all quotas of a tenant. Without --quota the tenant is left without quotas."""
    limited = await client.tenants.limit(name, _parse_quotas(quota))
    return Output(limited, f"Tenant {name} has {_quotas(limited) or 'no quotas'}.")


@client_command(app)
async def key(
    client: Client,
    name: Name,
    key: Annotated[str, arg("KEY", "Name of the key.")],
    role: Annotated[str, opt("Role of the key: admin, read-write or read-only.")] = "admin",
) -> Output:
    """Create a key for a tenant and print the secret. It is not shown again."""
    made = await client.tenants.create_key(name, KeyOptions(name=key, role=role))
    return Output(made, lambda: sys.stdout.write(f"{made.key}\n"))


@client_command(app)
async def delete(client: Client, name: Name, yes: Yes = False) -> Output:
    """Delete a tenant without queues, and its keys, specs and schedules."""
    confirm(f"Delete tenant {name} and its keys, specs and schedules?", yes)
    return deleted("tenant", name, await client.tenants.delete(name))


def _parse_quotas(given: Iterable[str]) -> Quotas:
    found: dict[str, Any] = {}
    for text in given:
        name, equals, number = text.partition("=")
        if not equals or not number.isdecimal():
            raise InvalidRequest(f"{text!r:.80} is not a quota; write it like queues=100")
        found[name] = int(number)
    try:
        return msgspec.convert(found, Quotas)
    except msgspec.ValidationError:
        known = ", ".join(Quotas.__struct_encode_fields__)
        raise InvalidRequest(f"unknown quota in {', '.join(found)}; known quotas are {known}") from None
