"""The programs of docs/high-availability.md on loopback, with the files of examples/high-availability."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from tests.postgres import unprivileged
from tests.until import until

EXAMPLES = Path(__file__).parents[2] / "examples/high-availability"
DEBIAN_POSTGRES = Path("/usr/lib/postgresql/15/bin")
SUPERUSER, REPLICATOR = "change-me-1", "change-me-2"
READY_SECONDS_MAX = 180.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"
_PR_SET_PDEATHSIG = 1


def missing() -> list[str]:
    """Return the programs of the recipes that this system does not have."""
    programs = [name for name in ("patroni", "etcd", "haproxy", "pgbouncer") if shutil.which(name, path=_PATH) is None]
    return [*programs, *([] if (DEBIAN_POSTGRES / "postgres").exists() else ["postgresql-15"])]


def free_port(address: str) -> int:
    with socket.socket() as one:
        one.bind((address, 0))
        return int(one.getsockname()[1])


def changed(name: str, replaced: dict[str, str]) -> str:
    """Return an example file with addresses and paths of this machine."""
    text = (EXAMPLES / name).read_text()
    for example, here in replaced.items():
        assert example in text, f"{example} is not in {name}"
        text = text.replace(example, here)
    return text


class Program:
    """A program in a process of its own, which ends with the tests. `log` is the file of its output."""

    def __init__(self, *command: object, log: Path) -> None:
        self.command = [str(one) for one in command]
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=log, cwd="/", preexec_fn=_end_with_parent, **unprivileged()
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(60)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


class Node:
    """A server of the cluster: Patroni, and the PostgreSQL that it runs."""

    def __init__(self, name: str, address: str, directory: Path, etcd: int) -> None:
        self.name = name
        self.address = address
        self.port, self.api = free_port(address), free_port(address)
        self._data = directory / name
        config = directory / f"{name}.yml"
        config.write_text(
            changed(
                "patroni.yml",
                {
                    "name: pg1": f"name: {name}",
                    "0.0.0.0:8008": f"{address}:{self.api}",
                    "pg1:8008": f"{address}:{self.api}",
                    "etcd1:2379,etcd2:2379,etcd3:2379": f"127.0.0.1:{etcd}",
                    "0.0.0.0:5432": f"{address}:{self.port}",
                    "pg1:5432": f"{address}:{self.port}",
                    "10.0.0.0/8": "127.0.0.0/8",
                    "/var/lib/postgresql/15/queues": str(self._data),
                    "ttl: 30": "ttl: 20",
                    "loop_wait: 10": "loop_wait: 1",
                    "retry_timeout: 10": "retry_timeout: 3",
                    "postgresql:\n  listen": f"postgresql:\n  pgpass: {directory}/{name}.pgpass\n"
                    f"  parameters:\n    unix_socket_directories: {directory}\n  listen",
                },
            )
        )
        self.config = config
        self.patroni = Program("patroni", config, log=directory / f"{name}.log")

    def kill(self) -> None:
        """End everything on this server, as a power failure does."""
        self.patroni.stop(signal.SIGKILL)
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        for one in [pid, *_children(pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        (self._data / "postmaster.pid").unlink()

    def status(self) -> dict[str, Any]:
        """Return what Patroni says of this server, nothing while it does not answer."""
        connection = http.client.HTTPConnection(self.address, self.api, timeout=5)
        try:
            connection.request("GET", "/patroni")
            return dict(msgspec.json.decode(connection.getresponse().read()))
        except (OSError, http.client.HTTPException):
            return {}
        finally:
            connection.close()

    def stop(self) -> None:
        self.patroni.stop()


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(one) for one in listed.stdout.split()]


def _is_primary(status: dict[str, Any]) -> bool:
    return status.get("role") in ("master", "primary") and status.get("state") == "running"


class Cluster:
    """Two servers with Patroni, and etcd."""

    def __init__(self, directory: Path, nodes: list[Node]) -> None:
        self.directory = directory
        self.nodes = nodes

    def url(self, *, attributes: str = "target_session_attrs=read-write") -> str:
        """Return a URL that names all servers."""
        hosts = ",".join(f"{node.address}:{node.port}" for node in self.nodes)
        return f"postgresql://fairlane:secret@{hosts}/queues?{attributes}"

    async def primary(self) -> Node:
        """Wait for a primary with a synchronous standby."""
        return next(node for node, status in await self._ready(2) if _is_primary(status))

    async def lone_primary(self) -> Node:
        """Wait for a primary while the other server is lost."""
        return next(node for node, status in await self._ready(1) if _is_primary(status))

    async def _ready(self, servers: int) -> list[tuple[Node, dict[str, Any]]]:
        async def ready() -> list[tuple[Node, dict[str, Any]]]:
            found = [(node, await asyncio.to_thread(node.status)) for node in self.nodes]
            useful = [one for _, one in found if _is_primary(one) or one.get("sync_standby")]
            if len(useful) == servers and any(map(_is_primary, useful)):
                return found
            await asyncio.sleep(0.2)
            return []

        return list(await until(ready, seconds=READY_SECONDS_MAX))

    async def create_database(self) -> None:
        """Create the role and the database of docs/operations.md."""
        node = await self.primary()
        admin = await asyncpg.connect(f"postgresql://postgres:{SUPERUSER}@{node.address}:{node.port}/postgres")
        try:
            await admin.execute("CREATE ROLE fairlane LOGIN PASSWORD 'secret'")
            await admin.execute("CREATE DATABASE queues")
            await admin.execute("GRANT CONNECT, CREATE ON DATABASE queues TO fairlane")
            await admin.execute("GRANT pg_monitor TO fairlane")
        finally:
            await admin.close()

    def switch_over(self, to: Node) -> None:
        """Make another server the primary, as before an upgrade of the first."""
        command = ["patronictl", "-c", str(to.config), "switchover", "--candidate", to.name, "--force", "queues"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert "Successfully switched over" in done.stdout, done.stdout + done.stderr


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    identity = unprivileged()
    directory = Path(tempfile.mkdtemp(prefix="fairlane-ha-"))
    if identity:
        os.chown(directory, identity["user"], identity["group"])
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        client, peer = free_port("127.0.0.1"), free_port("127.0.0.1")
        etcd = Program(
            *("etcd", "--data-dir", directory / "etcd", "--unsafe-no-fsync"),
            *("--listen-client-urls", f"http://127.0.0.1:{client}"),
            *("--advertise-client-urls", f"http://127.0.0.1:{client}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
            log=directory / "etcd.log",
        )
        etcd.start()
        stack.callback(etcd.stop)
        nodes = [Node(f"pg{number}", f"127.0.0.{number + 1}", directory, client) for number in (1, 2)]
        for node in nodes:
            node.patroni.start()
            stack.callback(node.stop)
        yield Cluster(directory, nodes)


@contextlib.contextmanager
def running_haproxy(cluster: Cluster) -> Iterator[int]:
    """Run HAProxy. Yields its port."""
    port = free_port("127.0.0.1")
    servers = {
        f"server {node.name} {node.name}:5432 check port 8008": f"server {node.name} {node.address}:{node.port} "
        f"check port {node.api}"
        for node in cluster.nodes
    }
    text = changed("haproxy.cfg", {"bind :5000": f"bind 127.0.0.1:{port}", **servers})
    text = text.replace("    server pg3 pg3:5432 check port 8008\n", "")
    config = cluster.directory / "haproxy.cfg"
    config.write_text(text)
    program = Program("haproxy", "-f", config, log=cluster.directory / "haproxy.log")
    program.start()
    try:
        yield port
    finally:
        program.stop()


@contextlib.contextmanager
def running_pgbouncer(cluster: Cluster, haproxy: int) -> Iterator[int]:
    """Run PgBouncer in front of HAProxy. Yields its port."""
    port = free_port("127.0.0.1")
    users = cluster.directory / "userlist.txt"
    users.write_text('"fairlane" "secret"\n')
    text = changed(
        "pgbouncer.ini",
        {
            "host=haproxy port=5000": f"host=127.0.0.1 port={haproxy}",
            "listen_addr = *": "listen_addr = 127.0.0.1",
            "listen_port = 6432": f"listen_port = {port}\nunix_socket_dir =",
            "/etc/pgbouncer/userlist.txt": str(users),
        },
    )
    config = cluster.directory / "pgbouncer.ini"
    config.write_text(text)
    program = Program("/usr/sbin/pgbouncer", config, log=cluster.directory / "pgbouncer.log")
    program.start()
    try:
        yield port
    finally:
        program.stop()
