"""`fairlane serve`: checks the settings, locks the data directory, opens the listeners and starts the broker."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click
from click.core import ParameterSource

from fairlane.cli.processes.banner import is_reachable, mask_password
from fairlane.cli.processes.store import own_data_directory, store_options
from fairlane.cli.processes.tokens import token_verifier
from fairlane.cli.toolkit.command import CommandGroup, new_command, opt
from fairlane.cli.toolkit.parameters import parameter
from fairlane.config import EMBEDDED, Settings, flags, load_settings, wants_otel
from fairlane.errors import InvalidRequest, StoreUnavailable

_MINIMUMS = (
    *(("workers", 1), ("connections_max", 1), ("audit_days", 0), ("polls_max", 0), ("failed_operations_seconds", 0)),
    *(("metrics_series_max", 0), ("tail_cache_bytes", 0)),
    *(("push_operations_max", 0), ("ack_operations_max", 0), ("wait_seconds_max", 0.1), ("store_timeout_seconds", 0.1)),
)
GROUPS = {
    "Store": "store listen_url statement_cache allow_unsafe data_dir",
    "Listeners": "host port socket hooks_listen metrics_listen workers",
    "Access": "tls_cert tls_key tls_client_ca require_auth insecure_no_auth audit_days"
    " allowed_hosts cors_origin trusted_proxies",
    "Specs": "secret_names outbound_allow pollers",
    "Limits": "connections_max polls_max peer_share inflight_bytes_max tail_cache_bytes",
    "Load and outages": "wait_seconds_max push_operations_max ack_operations_max failed_operations_seconds"
    " journal journal_bytes_max store_timeout_seconds",
    "Observability": "log_format otel metrics_series_max",
}
"""Settings that are options, by section of the help."""

_PATHS = ("store", "data_dir", "socket", "tls_cert", "tls_key", "tls_client_ca")
"""Settings for which a shell completes file names."""

app = CommandGroup()


def serve(config: Path | None, **options: Any) -> None:
    """Run the broker. Every option can also be set as FAIRLANE_<NAME> in the environment."""
    from fairlane import server_extra as _extra  # noqa: F401
    from fairlane.runtime.memory import collect_rarely

    collect_rarely()
    settings = given_settings(options, config)
    check(settings)
    from fairlane.cli.processes.banner import announce
    from fairlane.cli.processes.listeners import open_listeners
    from fairlane.cli.processes.logs import configure_logging

    configure_logging(settings.log_format)
    # Before the event loop handles signals, a signal must still unwind every context manager.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with own_data_directory(settings) as opened, open_listeners(settings) as sockets:
        check_credentials(opened)
        if settings.workers == 1:
            from fairlane.cli.processes.broker_process import run

            run(opened, sockets, ready=lambda: announce(settings, sockets))
            return
        import asyncio

        from fairlane.cli.processes.supervisor import BrokerSupervisor

        async def supervise() -> int:
            return await BrokerSupervisor(opened, sockets).run(lambda: announce(settings, sockets))

        code = asyncio.run(supervise())
    sys.exit(code)


def settings_options(*names: str) -> Iterator[click.Parameter]:
    """Return an option for each of these settings, and `--config`."""
    helps = flags()
    for name in names:
        default = Settings.__struct_defaults__[Settings.__struct_fields__.index(name)]
        path = {"type": click.Path()} if name in _PATHS else {}
        option = opt(helps[name], **path)
        yield parameter(name, Annotated[str if default is None else type(default), option], default)
    yield parameter("config", Annotated[Path | None, opt("TOML file with the same settings.")], None)


def given_settings(options: dict[str, Any], config: Path | None) -> Settings:
    """Return the settings from the options on the command line, the environment and the file `config`."""
    source = click.get_current_context().get_parameter_source
    return load_settings(
        {name: options[name] for name in options if source(name) is ParameterSource.COMMANDLINE}, config
    )


class _ServeCommand(click.Command):
    """A command whose help shows the options by topic."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {one.name: one.get_help_record(ctx) for one in self.get_params(ctx)}
        others = " ".join(name for name in records if name not in _NAMES)
        for title, names in {**GROUPS, "Options": others}.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names.split() if (record := records[name])])


_NAMES = [name for names in GROUPS.values() for name in names.split()]
app.add_command(new_command(_ServeCommand, "serve", serve, serve.__doc__, list(settings_options(*_NAMES))))


def check_credentials(settings: Settings) -> None:
    """Raise InvalidRequest if other machines can reach the broker and it has no keys or tokens."""
    if settings.insecure_no_auth or not is_reachable(settings) or token_verifier(settings) is not None:
        return
    import asyncio

    from fairlane.store.opening import open_store

    async def count() -> int:
        async with await open_store(settings.store, **store_options(settings)) as store:
            return (await store.api_keys.load()).count

    try:
        if asyncio.run(count()):
            return
    except StoreUnavailable:
        return  # the broker requires keys anyway, and refuses everybody until it has loaded them
    raise InvalidRequest(
        f"{settings.host or 'every address'} is reachable from other machines, and there is no key: create one with "
        f"`fairlane key create --role admin{_store_option(settings)}`, or listen on 127.0.0.1"
    )


def _store_option(settings: Settings) -> str:
    return "" if settings.store == Settings().store else f" --store {mask_password(settings.store)}"


def check(settings: Settings) -> None:
    """Raise InvalidRequest for invalid settings and for settings that contradict each other."""
    for name, minimum in _MINIMUMS:
        if not getattr(settings, name) >= minimum:  # also refuses NaN
            raise InvalidRequest(f"{name} is {getattr(settings, name)}; it must be at least {minimum}")
    if not 0 <= settings.port <= 65535:
        raise InvalidRequest(f"port is {settings.port}; it must be 0 to 65535")
    if settings.log_format not in ("text", "json"):
        raise InvalidRequest(f"log_format is {settings.log_format!r:.40}; it must be text or json")
    if settings.require_auth and settings.insecure_no_auth:
        raise InvalidRequest("require_auth and insecure_no_auth contradict each other; leave out one")
    if not 0 < settings.peer_share <= 1:
        raise InvalidRequest(f"peer_share is {settings.peer_share}; it must be more than 0 and at most 1")
    wants_otel(settings.otel)
    from fairlane.cli.processes.listeners import Listeners

    Listeners(settings)
    from fairlane.outbound.addresses import Allowed

    Allowed.parse(settings.outbound_allow.split(","))
    token_verifier(settings)
    from fairlane.http.cross_origin import Hosts, parse_origins

    Hosts(settings.allowed_hosts.split(","))
    if settings.cors_origin:
        parse_origins(settings.cors_origin)
    if settings.workers > 1 and settings.store.startswith("sqlite"):
        raise InvalidRequest("more than one worker needs PostgreSQL; a SQLite file has a single writer")
    if settings.listen_url is not None and settings.store == EMBEDDED:
        raise InvalidRequest("listen_url is for connection poolers; the embedded PostgreSQL has none")
