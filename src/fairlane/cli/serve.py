"""`fairlane serve`: the broker process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlane.config import Settings, load_settings
from fairlane.errors import InvalidRequest
from fairlane.runtime.memory import ease_collector

DRAIN_SECONDS = 8.0
log = logging.getLogger("fairlane")


def serve(
    store: Annotated[
        str | None, typer.Option(help="sqlite:///path, postgresql://..., or postgres for an embedded one")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; more than one needs PostgreSQL")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json")] = None,
    data_dir: Annotated[str | None, typer.Option(help="For what is not the store")] = None,
    listen_url: Annotated[str | None, typer.Option(help="PostgreSQL itself, if --store leads to a pooler")] = None,
    cors_origin: Annotated[str | None, typer.Option(help="Let pages of this origin call the API")] = None,
    allow_unsafe: Annotated[bool | None, typer.Option(help="Accept a store that may lose what it committed")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with the same settings")] = None,
) -> None:
    """Run the broker. Every option can also be set as FAIRLANE_<NAME> in the environment."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    settings = load_settings(flags, config)
    if settings.workers < 1:
        raise InvalidRequest(f"workers is {settings.workers}; it must be at least 1")
    if settings.workers > 1 and settings.store.startswith("sqlite"):
        raise InvalidRequest("more than one worker needs PostgreSQL: a SQLite file has one writer")
    _log_as(settings.log_format)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from fairlane.broker import Broker
    from fairlane.http.app import App
    from fairlane.http.server import Server

    options: dict[str, Any] = {}
    if not settings.store.startswith("sqlite"):
        options = {"listen_url": settings.listen_url, "allow_unsafe": settings.allow_unsafe}
    async with Broker.open(settings.store, **options) as broker:
        app = App(broker)
        server = app.server = Server(app.handle)
        ease_collector()
        port = await server.start(settings.host, settings.port)
        _say(settings, port)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await stop.wait()
        log.info("stopping: answering what is in flight")
        server.stop_listening()
        await broker.engine.stop()
        await server.close(grace_seconds=DRAIN_SECONDS)
    log.info("stopped")


def _say(settings: Settings, port: int) -> None:
    """What a person wants to know at start."""
    address = f"http://{settings.host}:{port}"
    log.info("fairlane %s on %s, store %s", version("fairlane"), address, _masked(settings.store))
    if settings.host not in ("127.0.0.1", "::1", "localhost"):
        log.warning(
            "listening on %s without authentication: anybody who reaches it may push, pop and delete", settings.host
        )
    if settings.allow_unsafe:
        log.warning("allow_unsafe is on: the store may lose what it committed")


def _masked(url: str) -> str:
    """The store's URL without its password."""
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    user = credentials.partition(":")[0]
    return f"{scheme}{separator}{user}{at}{place}" if at else url


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _log_as(log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Json() if log_format == "json" else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    )
    with contextlib.suppress(ValueError):
        logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
