"""A real pgbouncer in transaction mode in front of a test server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.postgres import PostgresServer, unprivileged

PORT = 6543
START_SECONDS_MAX = 10.0
POOL_SIZE = 3
"""Fewer than the connections of one broker, so that its statements really change servers."""


def pgbouncer() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextlib.contextmanager
def pooled(server: PostgresServer) -> Iterator[Path]:
    """Run the pooler. Yields the directory of its socket."""
    program = pgbouncer()
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="fairlane-pooler-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "pgbouncer.ini").write_text(
            # Every client is the user postgres, without a password.
            f"[databases]\n* = host={server.directory} user=postgres\n"
            f"[pgbouncer]\npool_mode = transaction\ndefault_pool_size = {POOL_SIZE}\nmax_client_conn = 100\n"
            f"auth_type = any\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {directory}\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        identity = unprivileged()
        if identity:
            os.chown(directory, identity["user"], identity["group"])
        log = (directory / "log").open("wb")
        with (
            log,
            subprocess.Popen(
                [program, str(directory / "pgbouncer.ini")], stdout=log, stderr=log, cwd="/", **identity
            ) as process,
        ):
            try:
                _wait_for(directory, process)
                yield directory
            finally:
                process.terminate()
                process.wait(START_SECONDS_MAX)


def _wait_for(directory: Path, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + START_SECONDS_MAX
    while not (directory / f".s.PGSQL.{PORT}").exists():
        if process.poll() is not None or time.monotonic() > give_up_at:
            raise RuntimeError(f"pgbouncer did not start:\n{(directory / 'log').read_text()}")
        time.sleep(0.01)
