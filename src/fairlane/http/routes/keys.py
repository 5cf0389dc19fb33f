"""API keys: create, list, show, rotate, revoke; and the identity of the caller."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.http.server import Response
from fairlane.model.moment import moment_or_none
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.principal import ANYBODY, Principal
from fairlane.wire import keys as wire
from fairlane.wire.base import encode

routes = Routes("keys")
_ALL = "/api/v1/keys"
_ONE = f"{_ALL}/{{key}}"
_ROTATE = wire.RotateBody()


@routes.get(_ALL, needs="keys", live=True)
async def list_keys(broker: Broker) -> wire.Keys:
    """List all keys without their secrets, oldest first."""
    return wire.Keys(keys=await broker.keys.all())


@routes.post(_ALL, needs="keys", answer=wire.NewKey, statuses=(201,))
async def create(broker: Broker, caller: Principal, body: wire.KeyOptions) -> Response:
    """Create a key that may do no more than the caller. The answer has its secret, which is never shown again."""
    made = await broker.keys.create(
        body.name, role=body.role, scopes=body.scopes, expires_at=body.expires_at, caller=caller
    )
    return Response(201, encode(made))


@routes.get(_ONE, needs="keys", live=True)
async def show(broker: Broker, key: str) -> wire.Key:
    """Show one key, by its id or its name."""
    return await broker.keys.get(key)


@routes.delete(_ONE, needs="keys")
async def revoke(broker: Broker, caller: Principal, key: str) -> wire.Key:
    """Revoke a key. Every broker refuses it within a second."""
    return await broker.keys.revoke(key, caller=caller)


@routes.post(f"{_ONE}/rotate", needs="keys")
async def rotate(broker: Broker, caller: Principal, key: str, body: wire.RotateBody = _ROTATE) -> wire.NewKey:
    """Rotate the secret of a key. The previous secret stays valid for a while."""
    return await broker.keys.rotate(key, grace_seconds=body.grace_seconds, caller=caller)


@routes.get("/api/v1/whoami", needs="known")
async def whoami(broker: Broker, caller: Principal) -> wire.Whoami:
    """Show the caller: its name, its tenant and its scopes."""
    return of_caller(caller, broker)


def of_caller(caller: Principal, broker: Broker) -> wire.Whoami:
    lists_cells = caller.tenant == DEFAULT_TENANT and caller.allows_all("status")
    grants = caller.grants
    narrow = [f"{scope}:{name}" for scope, name in grants.exact]
    narrow += [f"{scope}:{prefix}*" for scope, prefix in grants.prefixes]
    return wire.Whoami(
        name=caller.name,
        tenant=caller.tenant,
        scopes=sorted([*grants.whole, *narrow]),
        expires_at=moment_or_none(caller.expires_at),
        open=caller is ANYBODY,
        cells=len(broker.status.cell_health()) if lists_cells else 1,
    )
