"""`fairlane serve` from start to stop: its log, the settings that it refuses, and the files that it leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from asyncio import to_thread
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from fairlane.store.postgres.embedded import EmbeddedPostgres
from tests.broker_process import FAIRLANE, STOP_SECONDS_MAX, BrokerProcess
from tests.e2e.conftest import StartBroker, connected


def refused(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Return exit code and output of a broker that must not start."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    done = subprocess.run(
        [FAIRLANE, "serve", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=30,
    )
    return done.returncode, done.stderr


async def test_the_start_says_what_runs_where_and_what_is_unsafe(start: StartBroker, tmp_path: Path) -> None:
    quiet = await start(f"sqlite:///{tmp_path}/queue.db")
    assert f"fairlane {version('fairlane')} on {quiet.url}, store sqlite:///{tmp_path}/queue.db" in quiet.log[0]
    loud = await start("sqlite:///:memory:", "--host", "0.0.0.0", "--insecure-no-auth", "--cors-origin", "*")
    for broker in (quiet, loud):
        assert await to_thread(broker.stop) == 0
    assert f"{quiet.url}/docs" in quiet.log[1]
    assert not [line for line in quiet.log if "WARNING" in line]
    warnings = "".join(line for line in loud.log if "WARNING" in line)
    for word in ("without authentication", "in memory", "cors_origin"):
        assert word in warnings
    assert "http://127.0.0.1:" in loud.log[1], "an address that can be clicked on"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--workers", "2"], 2, "a SQLite file has a single writer"),
        (["--cors-origin", "example.com/"], 2, "an origin is"),
        (
            ["--store", "postgresql://127.0.0.1:1/x", "--workers", "2", "--no-journal"],
            75,
            "cannot connect to the database",
        ),
    ],
    ids=["workers", "origin", "database"],
)
def test_what_cannot_work_is_refused_in_words(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    found = refused(*arguments, cwd=tmp_path)
    assert found[0] == code, found
    assert words in found[1]
    assert "Traceback" not in found[1]


async def test_a_store_that_can_never_work_ends_the_first_start_and_says_what_to_do(
    database_url: str, tmp_path: Path
) -> None:
    """With a journal a broker starts without its database, but not if the database can never work."""
    owner = await asyncpg.connect(database_url)
    name = f"stranger_{uuid4().hex}"
    await owner.execute(f"CREATE ROLE {name} LOGIN")
    try:
        parts = urlsplit(database_url)
        missing = parts._replace(path="/not_there").geturl()
        stranger = database_url.replace("postgres@", f"{name}@", 1)
        wrong = "postgresql://localhost:port/x"
        for url, workers, words in (
            (missing, "2", "CREATE DATABASE"),
            (stranger, "1", "GRANT CREATE"),
            (wrong, "1", "check the URL of the store"),
        ):
            code, said = await to_thread(refused, "--store", url, "--workers", workers, cwd=tmp_path)
            assert (code, words in said, "Traceback" in said) == (2, True, False), said
    finally:
        await owner.execute(f"DROP ROLE {name}")
        await owner.close()


async def test_a_data_directory_and_a_port_have_one_broker(start: StartBroker, tmp_path: Path) -> None:
    mine = str(tmp_path / "data")
    broker = await start("sqlite:///:memory:", "--data-dir", mine)
    code, said = await to_thread(refused, "--data-dir", mine, cwd=tmp_path)
    assert (code, "belongs to another broker" in said) == (75, True), said
    code, said = await to_thread(refused, "--port", broker.url.rpartition(":")[2], cwd=tmp_path)
    assert (code, "Address already in use" in said) == (75, True), said
    await to_thread(broker.stop)
    await to_thread(broker.start)  # the directory is free again


async def test_an_embedded_postgresql_lives_and_ends_with_its_broker(start: StartBroker, open_path: Path) -> None:
    directory = open_path / "data"
    broker = await start("postgres", "--data-dir", str(directory), "--workers", "2")
    async with connected(broker) as wire:
        await wire.push("kept", 1)
    running = directory / "postgres" / "data" / "postmaster.pid"
    assert running.exists()
    assert await to_thread(broker.stop) == 0
    assert not running.exists()
    await to_thread(restart_after_a_kill, broker)
    async with connected(broker) as wire:
        assert [message["data"] for message in await wire.pop("kept")] == [1]
    assert await to_thread(broker.stop) == 0
    assert not running.exists()


async def test_an_embedded_postgresql_serves_the_broker_alone_and_knows_no_secret(
    start: StartBroker, open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLANE_SECRET_CANARY", "do-not-tell")
    directory = open_path / "data"
    await start("postgres", "--data-dir", str(directory))
    server = directory / "postgres"
    pid = (server / "data" / "postmaster.pid").read_text().split()[0]
    assert b"do-not-tell" not in await to_thread(Path(f"/proc/{pid}/environ").read_bytes)
    where: dict[str, Any] = {"host": str(server), "port": 5432, "database": "postgres"}
    connection = await asyncpg.connect(user="fairlane", **where)
    try:
        assert not await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")
    finally:
        await connection.close()
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await asyncpg.connect(user="postgres", **where)


def test_data_that_the_superuser_made_goes_to_the_brokers_role(open_path: Path) -> None:
    """Earlier versions used the superuser as the broker's role."""
    with EmbeddedPostgres(open_path, connections=1) as postgres:
        postgres._stop()
        sql = "CREATE SCHEMA fairlane; CREATE TABLE fairlane.t (id bigint GENERATED ALWAYS AS IDENTITY);\n\n"
        with TemporaryFile("w+") as script:
            script.write(sql)
            script.seek(0)
            single = (str(postgres._binaries / "postgres"), "--single", "-j", "-D", str(postgres._data), "postgres")
            postgres._run(*single, stdin=script)
        (postgres._data / "pg_hba.conf").write_text("local all all trust\n")
        postgres.start()
    with EmbeddedPostgres(open_path, connections=1) as postgres:
        found = asyncio.run(_owner(postgres.url))
    assert found == "fairlane"


async def _owner(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("INSERT INTO fairlane.t DEFAULT VALUES")
        return str(await connection.fetchval("SELECT tableowner FROM pg_tables WHERE schemaname = 'fairlane'"))
    finally:
        await connection.close()


def restart_after_a_kill(broker: BrokerProcess) -> None:
    """The embedded server of a killed broker is still running and is replaced."""
    broker.start()
    broker.kill()
    broker.start()
    assert any("still runs from a broker that was killed" in line for line in broker.log)


def test_a_broker_told_to_stop_while_it_starts_stops(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [FAIRLANE, "serve", "--store", f"sqlite:///{tmp_path}/q.db", "--data-dir", str(tmp_path), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.stderr.read()
    process.stderr.close()
    assert process.wait(STOP_SECONDS_MAX) == 0
