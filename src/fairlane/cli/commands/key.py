"""`fairlane key ...`: manage API keys through a broker or, without one, in its store."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fairlane.cli.toolkit.command import (
    CommandGroup,
    Output,
    Yes,
    arg,
    call_broker,
    columns_of,
    opt,
    print_fields,
    print_output,
    server_and_json,
)
from fairlane.cli.toolkit.output import confirm, echo, format_time, print_table
from fairlane.cli.toolkit.parameters import parameter, parameters_of
from fairlane.errors import InvalidRequest, StoreRefused, StoreUnavailable, Unavailable
from fairlane.model.names import DEFAULT_SERVER, DEFAULT_TENANT
from fairlane.runtime.durations import seconds_in
from fairlane.wire.keys import GRACE_SECONDS, Key, NewKey

if TYPE_CHECKING:
    from fairlane.broker.keys import Keys as StoredKeys
    from fairlane.client.keys import Keys as ClientKeys

    Keys = StoredKeys | ClientKeys
else:
    Keys = object

app = CommandGroup("key")
Work = Callable[[Keys], Awaitable[Output]]
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
Named = Annotated[str, arg("KEY", "Name or id of the key.")]
_STORE = opt(
    "Store to open directly, as for `fairlane serve`; for the first key, or if all keys are lost.",
    envvar="FAIRLANE_STORE",
)
_PARAMETERS = (
    parameter("store", Annotated[str | None, _STORE], None),
    parameter(
        "tenant", Annotated[str, opt("Tenant of the key; requires --store if it is not the default.")], DEFAULT_TENANT
    ),
)


def _allowed(key: Key) -> str:
    return " ".join([*([key.role] if key.role else []), *key.scopes])


_COLUMNS = columns_of(
    "name status allowed created=created_at expires=expires_at used=used_at id",
    allowed=_allowed,
)
_FIELDS = columns_of(
    "name id tenant status allowed created=created_at created_by expires=expires_at used=used_at revoked=revoked_at",
    allowed=_allowed,
)


_FIRST = (
    "\nEvery request now needs a key. Give one to producers, to workers, and to Prometheus for /metrics "
    "(--scope status).\nOnly /livez and /readyz answer without a key."
)


def key_command(name: str) -> Callable[[Handler], Handler]:
    """Turn a coroutine function that takes keys and options into a command."""

    def decorate(handler: Handler) -> Handler:
        def run(server: str, json: bool, store: str | None, tenant: str, **options: Any) -> None:
            named = options.get("key") or options.get("name") or (options.get("role") or "").partition(":")[0]
            audited = None if name in ("list", "show") else (f"keys.{name}", named)
            print_output(_with_keys(server, store, tenant, lambda keys: handler(keys, **options), audited), json)

        params = [*parameters_of(handler, exclude=("keys",)), *_PARAMETERS, *server_and_json()]
        app.add(name, run, handler.__doc__, params)
        return handler

    return decorate


def _with_keys(
    server: str,
    store: str | None,
    tenant: str,
    work: Callable[[Keys], Awaitable[Output]],
    audited: tuple[str, str] | None,
) -> Output:
    """Run `work` with the keys of a store or of a broker, and return its result.

    If a broker has the SQLite file open, the broker is used. Without `--store` and without a reachable broker, the
    store that `fairlane serve` would use is opened.
    """
    if store is not None:
        from fairlane.config import EMBEDDED
        from fairlane.store.opening import store_url

        store = store if store == EMBEDDED else store_url(store)
        try:
            return _on_store(store, tenant, work, audited)
        except StoreUnavailable as error:
            if isinstance(error, StoreRefused) or not store.startswith("sqlite"):
                raise
    if tenant != DEFAULT_TENANT:
        raise InvalidRequest("--tenant needs --store; a broker knows your tenant from your key")
    try:
        return call_broker(server, lambda client: work(client.keys))
    except Unavailable as error:
        if store is not None or server != DEFAULT_SERVER or "cannot reach" not in str(error):
            raise
    return _on_store(None, tenant, work, audited)


def _on_store(store: str | None, tenant: str, work: Work, audited: tuple[str, str] | None) -> Output:
    """Run `work` on the store, and record the action and target of `audited` in the audit log."""
    import asyncio

    import msgspec

    from fairlane import server_extra as _extra  # noqa: F401
    from fairlane.broker.credentials import Credentials
    from fairlane.broker.keys import Keys
    from fairlane.cli.processes.store import own_data_directory, store_options
    from fairlane.config import EMBEDDED, load_settings
    from fairlane.model.audit import AuditEntry
    from fairlane.store.opening import open_store

    settings = load_settings({"store": store})

    async def run(url: str) -> Output:
        async with await open_store(url, **store_options(msgspec.structs.replace(settings, store=url))) as opened:
            keys = Keys(opened, tenant, Credentials(opened, 0))
            if audited is None:
                return await work(keys)
            action, target = audited
            entry = AuditEntry(
                tenant=tenant, caller="command line", action=action, target=target, outcome="begun", source=""
            )
            [began] = await opened.audit.add([entry])
            try:
                answer = await work(keys)
            except Exception:  # recorded and raised again
                await opened.audit.add([msgspec.structs.replace(entry, outcome="failed", began=began)])
                raise
            await opened.audit.add([msgspec.structs.replace(entry, outcome="done", began=began)])
            return answer

    if settings.store != EMBEDDED:
        return asyncio.run(run(settings.store))
    with own_data_directory(settings) as started:
        return asyncio.run(run(started.store))


def _secret(key: NewKey, more: str = "") -> Output:
    def printed() -> None:
        sys.stdout.write(f"{key.key}\n")
        echo(f"Key {key.name} allows: {_allowed(key)}. It is not shown again.{more}")

    return Output(key, printed)


@key_command("create")
async def create(
    keys: Keys,
    name: Annotated[str | None, arg("NAME", "Name of the key; its role by default.")] = None,
    role: Annotated[
        str | None, opt("Role: admin, read-write or read-only; limit it to queues like read-only:orders.*")
    ] = None,
    scope: Annotated[
        tuple[str, ...], opt("Scope like push, pop:orders or status:orders.*. Can be repeated.", "--scope")
    ] = (),
    expires: Annotated[str | None, opt("Lifetime, like 90d; unlimited by default.")] = None,
) -> Output:
    """Create a key and print the secret to standard output. It is not shown again."""
    from fairlane.model.moment import Moment
    from fairlane.runtime.clock import wall_clock

    until = None if expires is None else Moment(wall_clock() + seconds_in(expires) * 1_000_000)
    named = name or (role or "").partition(":")[0]
    if not named:
        raise InvalidRequest("give the key a name")
    is_first = not await keys.all()
    made = await keys.create(named, role=role, scopes=list(scope), expires_at=until)
    return _secret(made, _FIRST if is_first and made.tenant == DEFAULT_TENANT else "")


@key_command("list")
async def list_keys(keys: Keys) -> Output:
    """List keys, including revoked ones, without their secrets."""
    found = await keys.all()
    rows = [[cell(one) for cell in _COLUMNS.values()] for one in found]
    empty = "There are no keys. The broker asks for none on loopback and refuses other addresses."
    return Output(found, lambda: print_table(list(_COLUMNS), rows, empty=empty))


@key_command("show")
async def show(keys: Keys, key: Named) -> Output:
    """Show a key without its secret."""
    found = await keys.get(key)
    return Output(found, lambda: print_fields(_FIELDS, found))


@key_command("revoke")
async def revoke(keys: Keys, key: Named, yes: Yes = False) -> Output:
    """Revoke a key. Every broker refuses it within a second."""
    confirm(f"Revoke key {key}? Its users are refused at once.", yes)
    found = await keys.revoke(key)
    return Output(found, f"Revoked key {found.name}.")


@key_command("rotate")
async def rotate(
    keys: Keys,
    key: Named,
    grace: Annotated[str, opt("How long the old secret stays valid, like 1h.")] = f"{GRACE_SECONDS // 3600}h",
) -> Output:
    """Give a key a new secret and print it. It is not shown again."""
    seconds = seconds_in(grace)
    found = await keys.rotate(key, grace_seconds=seconds)
    from fairlane.runtime.clock import wall_clock

    until = format_time(wall_clock() + seconds * 1_000_000)
    return _secret(found, f" The old one is valid until {until}." if seconds else "")
