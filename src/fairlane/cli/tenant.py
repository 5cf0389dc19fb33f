"""`fairlane tenant ...`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec

from fairlane.cli.output import confirm
from fairlane.cli.verb import Client, Noun, Shown, Yes, arg, columns_of, opt, verb
from fairlane.errors import InvalidRequest
from fairlane.model.tenant import Quotas
from fairlane.wire.keys import KeyOptions
from fairlane.wire.tenants import Tenant

app = Noun("tenant")

Name = Annotated[str, arg("NAME", "Name of the tenant.")]
Limits = Annotated[list[str] | None, opt("Of what it may have so many: queues, bytes, ...", metavar="NAME=NUMBER")]


def _quotas(tenant: Tenant) -> str:
    return " ".join(f"{name}={most}" for name, most in msgspec.to_builtins(tenant.quotas).items())


_COLUMNS = columns_of("name quotas created=created_at", quotas=_quotas)
_SHOWN = columns_of(
    "name quotas used created=created_at",
    quotas=_quotas,
    used=lambda one: " ".join(f"{name}={count}" for name, count in msgspec.to_builtins(one.used).items()),
)


@verb(app, "list", columns=_COLUMNS, empty="There are no tenants.")
async def list_tenants(client: Client) -> Any:
    """List all tenants and their quotas."""
    return await client.tenants.list()


@verb(app, facts=_SHOWN)
async def show(
    client: Client, name: Annotated[str | None, arg("NAME", "Name of the tenant; one's own.")] = None
) -> Any:
    """Show a tenant, its quotas and what it has."""
    return await (client.tenants.own() if name is None else client.tenants.show(name))


@verb(app)
async def create(client: Client, name: Name, quota: Limits = None) -> Shown:
    """Make a tenant."""
    return Shown(await client.tenants.create(name, _parsed(quota)), f"Tenant {name} is made; give it a key.")


@verb(app)
async def limit(client: Client, name: Name, quota: Limits = None) -> Shown:
    """Give a tenant quotas in place of all that it had; none of them for no quotas."""
    limited = await client.tenants.limit(name, _parsed(quota))
    return Shown(limited, f"Tenant {name} may have {_quotas(limited) or 'as much as it likes'}.")


@verb(app)
async def key(
    client: Client,
    name: Name,
    key: Annotated[str, arg("KEY", "Name of the key.")],
    role: Annotated[str, opt("admin, read-write or read-only.")] = "admin",
) -> Shown:
    """Make a key of a tenant, as its first one, and print it: this once."""
    made = await client.tenants.create_key(name, KeyOptions(name=key, role=role))
    return Shown(made, lambda: sys.stdout.write(f"{made.key}\n"))


@verb(app)
async def delete(client: Client, name: Name, yes: Yes = False) -> Shown:
    """Delete a tenant that has no queues any more, with its keys, specs and schedules."""
    confirm(f"Delete tenant {name} with its keys, specs and schedules?", yes)
    deleted = await client.tenants.delete(name)
    text = f"Tenant {name} is gone." if deleted else f"There is no tenant {name}."
    return Shown({"name": name, "deleted": deleted}, text, 0 if deleted else 1)


def _parsed(given: list[str] | None) -> Quotas:
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, number = text.partition("=")
        if not equals or not number.isdecimal():
            raise InvalidRequest(f"{text!r:.80} is no quota; say it like queues=100")
        found[name] = int(number)
    try:
        return msgspec.convert(found, Quotas)
    except msgspec.ValidationError:
        known = ", ".join(Quotas.__struct_encode_fields__)
        raise InvalidRequest(f"there is no such quota among {', '.join(found)}; there are {known}") from None
