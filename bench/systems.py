"""The systems of the sections `clients` and `embedded`. Each has equal durability: an answer means it is on disk.

Each run starts and stops its own servers. None runs as a service.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.stores import PostgresServer, fresh_database
from tests.broker_process import BrokerProcess, broker_process

PEERS = Path(__file__).resolve().parents[1] / ".venv-peers/bin/python"
START_SECONDS_MAX = 60.0


class Running(NamedTuple):
    """A running system: the URL for its clients, and the ids of the processes of its broker and of its store.

    `server` is the PostgreSQL server if that is the store.
    """

    url: str
    broker: tuple[int, ...] = ()
    store: tuple[int, ...] = ()
    server: PostgresServer | None = None


Opener = Callable[[Path, PostgresServer], AbstractAsyncContextManager[Running]]


class System(NamedTuple):
    """A system to compare with. `program` is the module in bench/peers that is its client, run by `python`."""

    name: str
    program: str
    open: Opener
    python: Path = PEERS
    needs: str = ""
    """The server program. A system whose program is missing is left out, with a note."""
    note: str = ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _listening(port: int) -> None:
    ends = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


@contextmanager
def _process(*command: str, **environment: str) -> Iterator[int]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()


def running_broker(broker: BrokerProcess, server: PostgresServer | None) -> Running:
    """Describe a Fairlane broker process, on SQLite if there is no server."""
    return Running(broker.url, (broker.pid,), (server.pid,) if server else (), server)


@asynccontextmanager
async def _sqlite(directory: Path, server: PostgresServer) -> AsyncIterator[Running]:
    with broker_process(f"sqlite:///{directory}/queue.db") as broker:
        yield running_broker(broker, None)


@asynccontextmanager
async def _postgres(directory: Path, server: PostgresServer) -> AsyncIterator[Running]:
    async with fresh_database(server) as url:
        with broker_process(url) as broker:
            yield running_broker(broker, server)


@asynccontextmanager
async def _table(directory: Path, server: PostgresServer) -> AsyncIterator[Running]:
    async with fresh_database(server) as url:
        yield Running(url, (), (server.pid,), server)


@asynccontextmanager
async def _file(directory: Path, server: PostgresServer) -> AsyncIterator[Running]:
    yield Running(f"sqlite:///{directory}/queue.db")


@asynccontextmanager
async def _redis(directory: Path, server: PostgresServer) -> AsyncIterator[Running]:
    port = _free_port()
    durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
    where = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--daemonize", "no")
    with _process("redis-server", *where, *durable) as pid:
        await _listening(port)
        yield Running(f"redis://127.0.0.1:{port}", (pid,))


@asynccontextmanager
async def _nats(directory: Path, server: PostgresServer) -> AsyncIterator[Running]:
    port = _free_port()
    settings = directory / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory}", max_file_store: 20GB'
        f"{', sync_interval: always' if nats_syncs() else ''} }}\n"
    )
    with _process("nats-server", "--config", str(settings)) as pid:
        await _listening(port)
        yield Running(f"nats://127.0.0.1:{port}", (pid,))


def nats_syncs() -> bool:
    """Return True if the installed version can flush before it answers (2.10 and later)."""
    if shutil.which("nats-server") is None:
        return False
    version = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = version.split("v")[-1].split(".")[:2]
    return (int(major), int(minor)) >= (2, 10)


@asynccontextmanager
async def _rabbitmq(directory: Path, server: PostgresServer) -> AsyncIterator[Running]:
    port, names, nodes = _free_port(), _free_port(), _free_port()
    environment = {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(nodes),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    # epmd would outlive RabbitMQ if RabbitMQ started it.
    with _process("epmd", "-port", str(names)), _process(_RABBITMQ, **environment) as pid:
        await _listening(port)
        yield Running(f"amqp://guest:guest@127.0.0.1:{port}/", (pid,))


_RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in PATH switches to another user

TABLE = System("SKIP LOCKED table", "skip_locked", _table, note="no retries, no groups, no order between consumers")
SYSTEMS = (
    System("Fairlane, PostgreSQL", "fairlane_client", _postgres, Path(sys.executable)),
    System("Fairlane, SQLite", "fairlane_client", _sqlite, Path(sys.executable)),
    System("Redis Streams", "redis_streams", _redis, needs="redis-server", note="appendfsync always, one stream"),
    System(
        "NATS JetStream",
        "nats_jetstream",
        _nats,
        needs="nats-server",
        note="sync always" if nats_syncs() else "NOT EQUAL: this version answers before it flushes",
    ),
    System("RabbitMQ quorum queue", "rabbitmq_quorum", _rabbitmq, needs=_RABBITMQ, note="confirms, one node"),
    TABLE,
)
EMBEDDED = (
    System("Fairlane, PostgreSQL", "fairlane_broker", _table, Path(sys.executable)),
    System("Fairlane, SQLite", "fairlane_broker", _file, Path(sys.executable)),
    TABLE,
    System("SQLite table", "sqlite_table", _file, Path(sys.executable), note="no retries, no groups, no leases"),
)
"""Queues in the process of the program."""


@contextmanager
def directory_below(base: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-", dir=base, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def is_installed(program: str) -> bool:
    return any(Path(where, program).exists() for where in os.get_exec_path()) or Path(program).exists()
