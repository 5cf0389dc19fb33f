"""API keys: make, list, look at, rotate, revoke; and who is asking."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.http.server import Response
from fairlane.model.access import ANYBODY, Caller
from fairlane.model.moment import moment_or_none
from fairlane.wire import keys as wire
from fairlane.wire.base import encode

routes = Routes("keys")
_ALL = "/api/v1/keys"
_ONE = f"{_ALL}/{{key}}"
_ROTATE = wire.RotateBody()


@routes.get(_ALL, needs="keys", live=True)
async def list_keys(broker: Broker) -> wire.Keys:
    """All keys, oldest first; never their secrets."""
    return wire.Keys(keys=await broker.keys.list())


@routes.post(_ALL, needs="keys", answer=wire.NewKey, statuses=(201,))
async def create(broker: Broker, caller: Caller, body: wire.KeyOptions) -> Response:
    """Make a key, which may do no more than the caller. Its secret is in the answer, and is never shown again."""
    made = await broker.keys.create(
        body.name, role=body.role, scopes=body.scopes, expires_at=body.expires_at, caller=caller
    )
    return Response(201, encode(made))


@routes.get(_ONE, needs="keys", live=True)
async def show(broker: Broker, key: str) -> wire.Key:
    """One key, by its id or its name."""
    return await broker.keys.get(key)


@routes.delete(_ONE, needs="keys")
async def revoke(broker: Broker, caller: Caller, key: str) -> wire.Key:
    """Refuse a key from now on, at every broker within a second."""
    return await broker.keys.revoke(key, caller=caller)


@routes.post(f"{_ONE}/rotate", needs="keys")
async def rotate(broker: Broker, caller: Caller, key: str, body: wire.RotateBody = _ROTATE) -> wire.NewKey:
    """Give a key another secret; the one before is good for a while too."""
    return await broker.keys.rotate(key, grace_seconds=body.grace_seconds, caller=caller)


@routes.get("/api/v1/whoami", needs="known")
async def whoami(caller: Caller) -> wire.Whoami:
    """The caller: its name, its tenant and its scopes."""
    return of_caller(caller)


def of_caller(caller: Caller) -> wire.Whoami:
    grants = caller.grants
    narrow = [f"{scope}:{name}" for scope, name in grants.exact]
    narrow += [f"{scope}:{prefix}*" for scope, prefix in grants.prefixes]
    return wire.Whoami(
        name=caller.name,
        tenant=caller.tenant,
        scopes=sorted([*grants.whole, *narrow]),
        expires_at=moment_or_none(caller.expires_at),
        open=caller is ANYBODY,
    )
