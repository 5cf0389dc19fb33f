"""`fairlane serve`: the broker. Here its parts are put together; what is one per data directory is begun here too,
by the process that owns the directory, before any worker."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fairlane.cli.banner import is_reached, masked
from fairlane.cli.command import Noun, Parameter, opt
from fairlane.cli.tokens import tokens_of
from fairlane.config import EMBEDDED, Settings, flags, load_settings, wants_otel
from fairlane.errors import InvalidRequest, StoreUnavailable

_LEAST = (
    *(("workers", 1), ("connections_max", 1), ("audit_days", 0), ("polls_max", 0), ("failed_operations_seconds", 0)),
    ("metrics_series_max", 0),
    *(("push_operations_max", 0), ("ack_operations_max", 0), ("wait_seconds_max", 0.1), ("patience_seconds", 0.1)),
)
GROUPS = {
    "Store": "store listen_url statement_cache allow_unsafe data_dir",
    "Where it listens": "host port socket hooks_listen workers",
    "Who may call": "tls_cert tls_key tls_client_ca require_auth insecure_no_auth audit_days"
    " allowed_hosts cors_origin trusted_proxies",
    "What specs may do": "secret_names outbound_allow pollers",
    "Limits": "connections_max polls_max peer_share inflight_bytes_max",
    "Load and outages": "wait_seconds_max push_operations_max ack_operations_max failed_operations_seconds"
    " journal journal_bytes_max patience_seconds",
    "Watching": "log_format otel metrics_series_max",
}
"""Settings that are options, by the title that they stand under."""

app = Noun()


def serve(config: Path | None = None, **flags: Any) -> None:
    """Run the broker. Every option can also be set as FAIRLANE_<NAME> in the environment."""
    from fairlane import server_extra as _extra  # noqa: F401

    settings = load_settings(flags, config)
    check(settings)
    from fairlane.cli.banner import announce
    from fairlane.cli.listeners import open_listeners
    from fairlane.cli.logs import log_as

    log_as(settings.log_format)
    # Until the loop takes the signals over, a signal must still leave by way of everything that was begun.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with owned(settings) as opened, open_listeners(settings) as sockets:
        check_credentials(opened)
        if settings.workers == 1:
            from fairlane.cli.broker_process import run

            run(opened, sockets, ready=lambda: announce(settings, sockets))
            return
        import asyncio

        from fairlane.cli.supervisor import Brokers

        async def supervise() -> int:
            return await Brokers(opened, sockets).run(lambda: announce(settings, sockets))

        code = asyncio.run(supervise())
    sys.exit(code)


def options(*names: str) -> Iterator[Parameter]:
    """An option for each setting, or for those of these names, which says what holds where it is not given."""
    helps = flags()
    for name, group in [(name, group) for group, some in GROUPS.items() for name in some.split()]:
        if names and name not in names:
            continue
        default = Settings.__struct_defaults__[Settings.__struct_fields__.index(name)]
        shown = ("on" if default else "off") if isinstance(default, bool) else str(default)
        shown = shown if default not in (None, "") else ""
        option = opt(helps[name], shown=shown, group="Options" if names else group)
        yield Parameter(name, Annotated[(str if default is None else type(default)) | None, option], None)
    yield Parameter("config", Annotated[Path | None, opt("A TOML file with the same settings")], None)


app.add("serve", serve, serve.__doc__, lambda: list(options()))


def store_options(settings: Settings) -> dict[str, Any]:
    """Those of a PostgreSQL; a SQLite file has none."""
    if settings.store.startswith("sqlite"):
        return {}
    return {
        "listen_url": settings.listen_url,
        "statement_cache": settings.statement_cache,
        "allow_unsafe": settings.allow_unsafe,
    }


@contextmanager
def owned(settings: Settings) -> Iterator[Settings]:
    """Hold the data directory and run what lives in it; the settings with which workers are to be started."""
    from fairlane.runtime.process import DataDirectory

    with DataDirectory(settings.data_dir) as directory:
        if settings.store != EMBEDDED:
            yield settings
            return
        from fairlane.store.postgres.embedded import EmbeddedPostgres

        with EmbeddedPostgres(directory.path, connections=20 * settings.workers) as postgres:
            yield msgspec.structs.replace(settings, store=postgres.url)


def check_credentials(settings: Settings) -> None:
    """InvalidRequest if strangers reach the broker and there is nothing to know its callers by."""
    if settings.insecure_no_auth or not is_reached(settings) or tokens_of(settings) is not None:
        return
    import asyncio

    from fairlane.store.opening import open_store

    async def count() -> int:
        async with await open_store(settings.store, **store_options(settings)) as store:
            return (await store.api_keys.known()).count

    try:
        if asyncio.run(count()):
            return
    except StoreUnavailable:
        return  # it asks for keys all the same, and lets nobody in before it knows them
    raise InvalidRequest(
        f"{settings.host or 'every address'} is reached from other machines, and there is no key yet: make one with "
        f"`fairlane key create --role admin{_of(settings)}`, or listen on 127.0.0.1"
    )


def _of(settings: Settings) -> str:
    return "" if settings.store == Settings().store else f" --store {masked(settings.store)}"


def check(settings: Settings) -> None:
    """InvalidRequest for values that cannot work, and for those that cannot work together."""
    for name, least in _LEAST:
        if not getattr(settings, name) >= least:  # which NaN is not either
            raise InvalidRequest(f"{name} is {getattr(settings, name)}; it must be at least {least}")
    if not 0 <= settings.port <= 65535:
        raise InvalidRequest(f"port is {settings.port}; it must be 0 to 65535")
    if settings.log_format not in ("text", "json"):
        raise InvalidRequest(f"log_format is {settings.log_format!r:.40}; it must be text or json")
    if settings.require_auth and settings.insecure_no_auth:
        raise InvalidRequest("require_auth asks everybody for a key, and insecure_no_auth nobody: leave out one")
    if not 0 < settings.peer_share <= 1:
        raise InvalidRequest(f"peer_share is {settings.peer_share}; it must be more than 0 and at most 1")
    wants_otel(settings.otel)
    from fairlane.cli.listeners import Listeners

    Listeners(settings)
    from fairlane.outbound.addresses import Allowed

    Allowed.parse(settings.outbound_allow.split(","))
    tokens_of(settings)
    from fairlane.http.browsers import Hosts, check_origins

    Hosts(settings.allowed_hosts.split(","))
    if settings.cors_origin:
        check_origins(settings.cors_origin)
    if settings.workers > 1 and settings.store.startswith("sqlite"):
        raise InvalidRequest("more than one worker needs PostgreSQL: a SQLite file has one writer")
    if settings.listen_url is not None and settings.store == EMBEDDED:
        raise InvalidRequest("listen_url goes with a pooler; the embedded PostgreSQL has none")
