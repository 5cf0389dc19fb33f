"""The broker process: a broker over its store, behind the HTTP server.

`fairlane serve` runs it in its own process, or several under a supervisor. The supervisor starts each as
`python -m fairlane.cli.processes.broker_process` and sends a `BrokerTask` as the first line on stdin. The process stops
when its stdin closes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.broker.admission import Kind, Limit
from fairlane.broker.broker import Broker
from fairlane.cli import FAILED, REFUSED, TRY_AGAIN
from fairlane.cli.processes.banner import requires_auth, visible_settings
from fairlane.cli.processes.listeners import Listeners, Sockets
from fairlane.cli.processes.logs import configure_logging, log_stopped
from fairlane.cli.processes.otel import MetricsSender, start_otel
from fairlane.cli.processes.pollers import PollerService
from fairlane.cli.processes.store import store_options
from fairlane.cli.processes.supervisor import READY, BrokerTask
from fairlane.cli.processes.tokens import token_verifier
from fairlane.commands.executors import Executors
from fairlane.commands.service import CommandService
from fairlane.config import Settings, encryption_key, named_variables
from fairlane.errors import FairlaneError
from fairlane.http.app import HttpApp
from fairlane.http.metrics.process import snapshot
from fairlane.outbound.addresses import Allowed
from fairlane.runtime.memory import collect_rarely, exempt_from_collection, return_large_blocks
from fairlane.runtime.peer_processes import PeerProcesses
from fairlane.runtime.process import new_event_loop, raise_descriptor_limit

if TYPE_CHECKING:
    from fairlane.outbound.client import OutboundClient

DRAIN_SECONDS = 8.0
GIVE_UP_SECONDS = 9.0
"""The process exits this long after a signal, even if something hangs."""

log = logging.getLogger("fairlane")


def run(settings: Settings, sockets: Sockets, *, ready: Callable[[], object], number: int | None = None) -> None:
    """Serve until SIGTERM, SIGINT or, with a `number`, the end of stdin. Calls `ready` once it listens."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, sockets, ready, number))


async def _serve(settings: Settings, sockets: Sockets, ready: Callable[[], object], number: int | None) -> None:
    stop = _stop_event(number)
    traced = start_otel(settings.otel, "fairlane")
    descriptors = raise_descriptor_limit()
    if descriptors < settings.connections_max + 100:
        log.warning("the system allows %(files)d open files, fewer than connections_max needs", {"files": descriptors})
    peer_processes = None if number is None else PeerProcesses(Path(settings.data_dir), number, settings.workers)
    options = _options(settings) | {
        "retention_interval": settings.retention_interval_seconds,
        "encryption_key": encryption_key(settings),
        "sealed_queues": settings.sealed_queues,
        "failed_operations_seconds": settings.failed_operations_seconds,
        "limits": limits(settings),
        "store_timeout_seconds": settings.store_timeout_seconds,
        "outbound_allow": settings.outbound_allow,
        "secret_names": settings.secret_names,
        "audit_seconds": settings.audit_days * 86_400,
        "peer_processes": peer_processes,
    }
    async with Broker.open(settings.store, polls_max=settings.polls_max, **options) as broker:
        secrets = partial(named_variables, allowed=settings.secret_names)
        allowed = Allowed.parse(settings.outbound_allow.split(","))
        executors = Executors(broker, partial(_open_client, allowed), secrets)
        commands = CommandService(broker, executors)
        pollers = PollerService(broker, secrets, allowed)
        tokens = token_verifier(settings)
        app = HttpApp(
            broker,
            peer_processes=peer_processes,
            metrics_series_max=settings.metrics_series_max,
            settings=visible_settings(settings),
            tokens=tokens,
            runner=executors,
        )
        required = tokens is not None or requires_auth(settings)
        broker.process.credentials.require(required=required, ignored=settings.insecure_no_auth)
        if peer_processes is not None:
            broker.process.peer_stats.answers["metrics"] = partial(snapshot, app)
            await peer_processes.serve(broker.process.peer_stats.answers)
        sender = MetricsSender(app)
        if traced:
            sender.start()
        exempt_from_collection()
        return_large_blocks()
        if tokens is not None:
            await tokens.start()
        commands.start()
        if settings.pollers:
            pollers.start()
        server = await Listeners(settings).start(app, sockets)
        ready()
        await stop.wait()
        log.info("stopping: answering requests in flight")
        server.stop_listening()
        await asyncio.gather(commands.stop(), pollers.stop(), sender.stop())
        await broker.stop()
        await server.close(grace_seconds=DRAIN_SECONDS)
        if peer_processes is not None:
            peer_processes.close()
        await executors.close()
        if tokens is not None:
            await tokens.stop()
    log_stopped(log)


def _open_client(allowed: Allowed) -> OutboundClient:
    from fairlane.outbound.client import OutboundClient

    return OutboundClient(allowed)


def limits(settings: Settings) -> dict[Kind, Limit]:
    """Return the admission limits of pushes, acks and pops."""
    wait = settings.wait_seconds_max
    return {
        "push": Limit(wait, settings.push_operations_max),
        "ack": Limit(wait, settings.ack_operations_max),
        "pop": Limit(wait, 0),
    }


def _options(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if settings.journal:
        options = {
            "journal": str(Path(settings.data_dir) / "journal"),
            "journal_bytes_max": settings.journal_bytes_max,
        }
    return options | store_options(settings)


def _stop_event(number: int | None) -> asyncio.Event:
    """Return an event that stop signals set. The first signal also starts the shutdown timeout."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def request_stop() -> None:
        if not stop.is_set():
            stop.set()
            loop.call_later(GIVE_UP_SECONDS, _give_up)

    def on_input() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            request_stop()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, request_stop)
    if number is not None:
        loop.add_reader(0, on_input)
    return stop


def _give_up() -> None:
    log.error(
        "shutdown took longer than %(seconds).0f seconds; exiting anyway",
        {"seconds": GIVE_UP_SECONDS},
    )
    logging.shutdown()
    os._exit(FAILED)


def main() -> None:
    collect_rarely()
    task = msgspec.json.decode(_first_line(), type=BrokerTask)
    configure_logging(task.settings.log_format, worker=task.number)
    sockets = {kind: [socket.socket(fileno=one) for one in numbers] for kind, numbers in task.sockets.items()}
    try:
        run(task.settings, sockets, ready=lambda: os.write(1, READY), number=task.number)
    except FairlaneError as error:
        log.error("%(error)s", {"error": error})
        sys.exit(TRY_AGAIN if error.retryable else REFUSED)


def _first_line() -> bytes:
    """Read the first line of stdin byte by byte. A buffered read would hide the end of stdin from the event loop."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            sys.exit(1)
        line += part
    return line


if __name__ == "__main__":
    main()
