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
import typer

from fairlane.config import Settings, load_settings
from fairlane.errors import InvalidRequest

EMBEDDED = "postgres"
_LEAST = (
    *(("workers", 1), ("connections_max", 1), ("polls_max", 0), ("failed_operations_seconds", 0)),
    *(("push_operations_max", 0), ("ack_operations_max", 0), ("wait_seconds_max", 0.1), ("patience_seconds", 0.1)),
)


def _flag(name: str, help: str) -> Any:
    """An option of this setting, which says what holds where it is not given."""
    default = Settings.__struct_defaults__[Settings.__struct_fields__.index(name)]
    shown = ("on" if default else "off") if isinstance(default, bool) else str(default)
    return typer.Option(help=help, show_default=shown if default not in (None, "") else False)


def serve(
    store: Annotated[
        str | None, _flag("store", "sqlite:///path, postgresql://..., or postgres for an embedded one")
    ] = None,
    host: Annotated[str | None, _flag("host", "Address to listen on")] = None,
    port: Annotated[int | None, _flag("port", "Port to listen on")] = None,
    workers: Annotated[int | None, _flag("workers", "Processes; more than one needs PostgreSQL")] = None,
    log_format: Annotated[str | None, _flag("log_format", "text or json")] = None,
    data_dir: Annotated[str | None, _flag("data_dir", "For what is not the store; one broker each")] = None,
    listen_url: Annotated[str | None, _flag("listen_url", "PostgreSQL itself, if --store leads to a pooler")] = None,
    statement_cache: Annotated[
        bool | None, _flag("statement_cache", "Off for a pooler that cannot keep prepared statements")
    ] = None,
    allowed_hosts: Annotated[
        str | None, _flag("allowed_hosts", "Names and addresses by which clients ask for it, separated by commas")
    ] = None,
    cors_origin: Annotated[str | None, _flag("cors_origin", "Let pages of these origins call the API")] = None,
    secret_names: Annotated[
        str | None, _flag("secret_names", "Environment variables that specs may name, besides FAIRLANE_SECRET_*")
    ] = None,
    outbound_allow: Annotated[
        str | None,
        _flag(
            "outbound_allow", "Hosts and networks inside that commands may call and pollers read, separated by commas"
        ),
    ] = None,
    pollers: Annotated[
        bool | None, _flag("pollers", "Read what the pollers of applied specs declare; one broker does at a time")
    ] = None,
    connections_max: Annotated[int | None, _flag("connections_max", "Connections of clients, in each process")] = None,
    polls_max: Annotated[int | None, _flag("polls_max", "Long polls that wait at once, in each process")] = None,
    allow_unsafe: Annotated[
        bool | None, _flag("allow_unsafe", "Accept a store that may lose what it committed")
    ] = None,
    journal: Annotated[
        bool | None, _flag("journal", "Keep pushes and acks below the data directory while the store is away")
    ] = None,
    inflight_bytes_max: Annotated[
        int | None, _flag("inflight_bytes_max", "Of all requests and unread answers together, in each process")
    ] = None,
    failed_operations_seconds: Annotated[
        int | None, _flag("failed_operations_seconds", "How long failed operations are kept; 0 for ever")
    ] = None,
    journal_bytes_max: Annotated[
        int | None, _flag("journal_bytes_max", "Past this the journal refuses with 429")
    ] = None,
    patience_seconds: Annotated[
        float | None, _flag("patience_seconds", "A push or an ack that takes the store longer goes to the journal")
    ] = None,
    wait_seconds_max: Annotated[
        float | None, _flag("wait_seconds_max", "Longest wait for a busy store; past it pushes and acks get 202")
    ] = None,
    push_operations_max: Annotated[
        int | None, _flag("push_operations_max", "Waiting operations past which pushes get 429")
    ] = None,
    ack_operations_max: Annotated[
        int | None, _flag("ack_operations_max", "Waiting operations past which acks get 429")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with the same settings")] = None,
) -> None:
    """Run the broker. Every option can also be set as FAIRLANE_<NAME> in the environment."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    from fairlane import server_extra as _extra  # noqa: F401

    settings = load_settings(flags, config)
    check(settings)
    from fairlane.cli.banner import announce
    from fairlane.cli.broker_process import run
    from fairlane.cli.logs import log_as
    from fairlane.http.server import open_sockets

    log_as(settings.log_format)
    # Until the loop takes the signals over, a signal must still leave by way of everything that was begun.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with owned(settings) as opened:
        sockets = open_sockets(settings.host, settings.port)
        port = sockets[0].getsockname()[1]
        if settings.workers == 1:
            run(opened, sockets, ready=lambda: announce(settings, port))
            return
        import asyncio

        from fairlane.cli.supervisor import Supervisor

        async def supervise() -> int:
            return await Supervisor(opened, sockets).run(lambda: announce(settings, port))

        code = asyncio.run(supervise())
    sys.exit(code)


@contextmanager
def owned(settings: Settings) -> Iterator[Settings]:
    """Hold the data directory and run what lives in it; the settings with which workers are to be started."""
    from fairlane.runtime.data_directory import DataDirectory

    with DataDirectory(settings.data_dir) as directory:
        if settings.store != EMBEDDED:
            yield settings
            return
        from fairlane.store.postgres.embedded import EmbeddedPostgres

        with EmbeddedPostgres(directory.path, connections=20 * settings.workers) as postgres:
            yield msgspec.structs.replace(settings, store=postgres.url)


def check(settings: Settings) -> None:
    """InvalidRequest for values that cannot work, and for those that cannot work together."""
    for name, least in _LEAST:
        if not getattr(settings, name) >= least:  # which NaN is not either
            raise InvalidRequest(f"{name} is {getattr(settings, name)}; it must be at least {least}")
    if not 0 <= settings.port <= 65535:
        raise InvalidRequest(f"port is {settings.port}; it must be 0 to 65535")
    if settings.log_format not in ("text", "json"):
        raise InvalidRequest(f"log_format is {settings.log_format!r:.40}; it must be text or json")
    from fairlane.outbound.addresses import Allowed

    Allowed.parse(settings.outbound_allow.split(","))
    from fairlane.http.browsers import Hosts, check_origins

    Hosts(settings.allowed_hosts.split(","))
    if settings.cors_origin:
        check_origins(settings.cors_origin)
    if settings.workers > 1 and settings.store.startswith("sqlite"):
        raise InvalidRequest("more than one worker needs PostgreSQL: a SQLite file has one writer")
    if settings.listen_url is not None and settings.store == EMBEDDED:
        raise InvalidRequest("listen_url goes with a pooler; the embedded PostgreSQL has none")
