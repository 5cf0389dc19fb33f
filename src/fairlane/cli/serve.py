"""`fairlane serve`: the broker. Here its parts are put together; what is one per data directory is begun here too,
by the process that owns the directory, before any worker."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fairlane.cli.verb import declare, parameter
from fairlane.config import Settings, flags, load_settings, wants_otel
from fairlane.errors import InvalidRequest

EMBEDDED = "postgres"
_LEAST = (
    *(("workers", 1), ("connections_max", 1), ("polls_max", 0), ("failed_operations_seconds", 0)),
    ("metrics_series_max", 0),
    *(("push_operations_max", 0), ("ack_operations_max", 0), ("wait_seconds_max", 0.1), ("patience_seconds", 0.1)),
)


def serve(config: Path | None = None, **flags: Any) -> None:
    """Run the broker. Every option can also be set as FAIRLANE_<NAME> in the environment."""
    from fairlane import server_extra as _extra  # noqa: F401

    settings = load_settings(flags, config)
    check(settings)
    from fairlane.cli.banner import announce
    from fairlane.cli.logs import log_as
    from fairlane.http.server import open_sockets

    log_as(settings.log_format)
    # Until the loop takes the signals over, a signal must still leave by way of everything that was begun.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with owned(settings) as opened:
        sockets = open_sockets(settings.host, settings.port)
        port = sockets[0].getsockname()[1]
        if settings.workers == 1:
            from fairlane.cli.broker_process import run

            run(opened, sockets, ready=lambda: announce(settings, port))
            return
        import asyncio

        from fairlane.cli.supervisor import Brokers

        async def supervise() -> int:
            return await Brokers(opened, sockets).run(lambda: announce(settings, port))

        code = asyncio.run(supervise())
    sys.exit(code)


def _options() -> Iterator[inspect.Parameter]:
    """An option for each setting, which says what holds where it is not given."""
    for name, help in flags().items():
        default = Settings.__struct_defaults__[Settings.__struct_fields__.index(name)]
        shown = ("on" if default else "off") if isinstance(default, bool) else str(default)
        option = typer.Option(help=help, show_default=shown if default not in (None, "") else False)
        yield parameter(name, Annotated[(str if default is None else type(default)) | None, option], None)
    yield parameter("config", Annotated[Path | None, typer.Option(help="A TOML file with the same settings")], None)


declare(serve, _options())


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


def check(settings: Settings) -> None:
    """InvalidRequest for values that cannot work, and for those that cannot work together."""
    for name, least in _LEAST:
        if not getattr(settings, name) >= least:  # which NaN is not either
            raise InvalidRequest(f"{name} is {getattr(settings, name)}; it must be at least {least}")
    if not 0 <= settings.port <= 65535:
        raise InvalidRequest(f"port is {settings.port}; it must be 0 to 65535")
    if settings.log_format not in ("text", "json"):
        raise InvalidRequest(f"log_format is {settings.log_format!r:.40}; it must be text or json")
    wants_otel(settings.otel)
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
