"""`fairlane key ...`: by a broker, or where none runs, or none lets one in, on its store."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fairlane.cli.command import Parameter, parameters_of
from fairlane.cli.output import confirm, echo, print_table, shown_time
from fairlane.cli.verb import JSON, SERVER, Noun, Shown, Yes, arg, ask, columns_of, opt, print_facts, print_shown
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

app = Noun("key")
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])
Named = Annotated[str, arg("KEY", "Its name or its id.")]
_STORE = opt(
    "Work on the store itself, as `fairlane serve` names it: for the first key, and when the last one is lost.",
    envvar="FAIRLANE_STORE",
)
_PARAMETERS = (
    Parameter("store", Annotated[str | None, _STORE], None),
    Parameter("tenant", Annotated[str, opt("Of which tenant; another one only with --store.")], DEFAULT_TENANT),
)


def _allowed(key: Key) -> str:
    return " ".join([*([key.role] if key.role else []), *key.scopes])


_COLUMNS = columns_of(
    "name status allowed created=created_at expires=expires_at used=used_at id",
    allowed=_allowed,
)
_FACTS = columns_of(
    "name id tenant status allowed created=created_at created_by expires=expires_at used=used_at revoked=revoked_at",
    allowed=_allowed,
)


_FIRST = (
    "\nFrom now on every request needs a key: give one to producers, to workers, and to Prometheus for /metrics "
    "(--scope status).\nOnly /livez and /readyz answer without."
)


def key_verb(name: str) -> Callable[[Handler], Handler]:
    """Make a command of a coroutine function of keys and of options."""

    def decorate(handler: Handler) -> Handler:
        def command(server: str, json: bool, store: str | None, tenant: str, **options: Any) -> None:
            named = options.get("key") or options.get("name") or (options.get("role") or "").partition(":")[0]
            noted = None if name in ("list", "show") else (f"keys.{name}", named)
            print_shown(_with_keys(server, store, tenant, lambda keys: handler(keys, **options), noted), json)

        def parameters() -> list[Parameter]:
            return [*parameters_of(handler, besides=("keys",)), *_PARAMETERS, SERVER, JSON]

        app.add(name, command, handler.__doc__, parameters)
        return handler

    return decorate


def _with_keys(
    server: str, store: str | None, tenant: str, work: Callable[[Keys], Awaitable[Shown]], noted: tuple[str, str] | None
) -> Shown:
    """What `work` comes to with the keys of a store or of a broker. A SQLite file that a broker has open is asked for
    by way of that broker; without a store and a broker it is the store that `fairlane serve` would use."""
    if store is not None:
        from fairlane.config import EMBEDDED
        from fairlane.store.opening import store_url

        store = store if store == EMBEDDED else store_url(store)
        try:
            return _on_store(store, tenant, work, noted)
        except StoreUnavailable as error:
            if isinstance(error, StoreRefused) or not store.startswith("sqlite"):
                raise
    if tenant != DEFAULT_TENANT:
        raise InvalidRequest("--tenant goes with --store; a broker knows your tenant by your key")
    try:
        return ask(server, lambda client: work(client.keys))
    except Unavailable as error:
        if store is not None or server != DEFAULT_SERVER or "cannot reach" not in str(error):
            raise
    return _on_store(None, tenant, work, noted)


def _on_store(
    store: str | None, tenant: str, work: Callable[[Keys], Awaitable[Shown]], noted: tuple[str, str] | None
) -> Shown:
    """With `noted`, an action and what it is about, the audit log has it."""
    import asyncio

    import msgspec

    from fairlane import server_extra as _extra  # noqa: F401
    from fairlane.broker.credentials import Credentials
    from fairlane.broker.keys import Keys
    from fairlane.cli.serve import owned, store_options
    from fairlane.config import EMBEDDED, load_settings
    from fairlane.model.audit import AuditEntry
    from fairlane.store.opening import open_store

    settings = load_settings({"store": store})

    async def worked(url: str) -> Shown:
        async with await open_store(url, **store_options(msgspec.structs.replace(settings, store=url))) as opened:
            keys = Keys(opened, tenant, Credentials(opened, 0))
            if noted is None:
                return await work(keys)
            action, target = noted
            entry = AuditEntry(
                tenant=tenant, caller="command line", action=action, target=target, outcome="begun", source=""
            )
            [began] = await opened.audit.add([entry])
            try:
                answer = await work(keys)
            except Exception:  # whatever it is, it is noted and goes on
                await opened.audit.add([msgspec.structs.replace(entry, outcome="failed", began=began)])
                raise
            await opened.audit.add([msgspec.structs.replace(entry, outcome="done", began=began)])
            return answer

    if settings.store != EMBEDDED:
        return asyncio.run(worked(settings.store))
    with owned(settings) as started:
        return asyncio.run(worked(started.store))


def _secret(key: NewKey, more: str = "") -> Shown:
    def printed() -> None:
        sys.stdout.write(f"{key.key}\n")
        echo(f"Key {key.name} may: {_allowed(key)}. It is shown this once.{more}")

    return Shown(key, printed)


@key_verb("create")
async def create(
    keys: Keys,
    name: Annotated[str | None, arg("NAME", "Of the key; its role if there is none.")] = None,
    role: Annotated[str | None, opt("admin, read-write or read-only; for some queues: read-only:orders.*")] = None,
    scope: Annotated[
        list[str] | None, opt("Like push, pop:orders or status:orders.*; may be repeated.", "--scope")
    ] = None,
    expires: Annotated[str | None, opt("How long it is good, like 90d; for ever without.")] = None,
) -> Shown:
    """Make a key, and print it: this once, and alone on standard output."""
    from fairlane.model.moment import Moment
    from fairlane.runtime.clock import wall_clock

    until = None if expires is None else Moment(wall_clock() + seconds_in(expires) * 1_000_000)
    named = name or (role or "").partition(":")[0]
    if not named:
        raise InvalidRequest("give the key a name")
    is_first = not await keys.list()
    made = await keys.create(named, role=role, scopes=scope or [], expires_at=until)
    return _secret(made, _FIRST if is_first and made.tenant == DEFAULT_TENANT else "")


@key_verb("list")
async def list_keys(keys: Keys) -> Shown:
    """List the keys, those that are revoked too; never their secrets."""
    found = await keys.list()
    rows = [[cell(one) for cell in _COLUMNS.values()] for one in found]
    empty = "There are no keys: nobody is asked for one on loopback, and other addresses are refused."
    return Shown(found, lambda: print_table(list(_COLUMNS), rows, empty=empty))


@key_verb("show")
async def show(keys: Keys, key: Named) -> Shown:
    """Show one key."""
    found = await keys.get(key)
    return Shown(found, lambda: print_facts(_FACTS, found))


@key_verb("revoke")
async def revoke(keys: Keys, key: Named, yes: Yes = False) -> Shown:
    """Refuse a key from now on, at every broker within a second."""
    confirm(f"Revoke key {key}? Whoever uses it is refused at once.", yes)
    found = await keys.revoke(key)
    return Shown(found, f"Key {found.name} is revoked.")


@key_verb("rotate")
async def rotate(
    keys: Keys,
    key: Named,
    grace: Annotated[str, opt("How long the secret before is good too, like 1h.")] = f"{GRACE_SECONDS // 3600}h",
) -> Shown:
    """Give a key another secret, and print it: this once."""
    seconds = seconds_in(grace)
    found = await keys.rotate(key, grace_seconds=seconds)
    from fairlane.runtime.clock import wall_clock

    until = shown_time(wall_clock() + seconds * 1_000_000)
    return _secret(found, f" The one before is good until {until}." if seconds else "")
