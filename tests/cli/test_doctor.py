"""`fairlane doctor` with real stores, servers and poolers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.http.app import HttpApp
from fairlane.http.server import open_sockets
from tests.cli.conftest import in_process
from tests.conftest import FreshDatabase
from tests.pooler.pgbouncer import PORT, pgbouncer, pooled
from tests.postgres import PostgresServer

needs_pooler = pytest.mark.skipif(
    pgbouncer() is None, reason="there is no pgbouncer on this system; `make test` installs one as root on Debian"
)


@pytest.fixture(autouse=True)
def _free_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRLANE_PORT", "0")
    monkeypatch.setenv("FAIRLANE_DATA_DIR", str(tmp_path))


async def examined(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the advice of failed checks."""
    code, out, err = await asyncio.to_thread(in_process, ["doctor", *arguments, "--json"])
    assert err == ""
    return code, {one["check"]: one["advice"] for one in json.loads(out) if not one["ok"] and one["is"]}


async def test_a_sqlite_store_is_well_and_one_in_memory_is_not(tmp_path: Path) -> None:
    _, out, _ = await asyncio.to_thread(in_process, ["doctor", "--store", f"sqlite:///{tmp_path}/queue.db"])
    checks = [line[4:24].strip() for line in out.splitlines() if line.startswith(("ok  ", "no  "))]
    assert checks == ["versions", "data directory", "fsync", "port", "store", "fsync", "version"]
    _, found = await examined("--store", "sqlite:///:memory:")
    assert found["store"] == "use a file: all messages are lost when the broker stops"


async def test_a_port_that_is_taken_and_a_wrong_setting_are_told_of(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, found = await examined("--port", str(taken.getsockname()[1]))
    assert (code, "choose another port with --port" in found["port"]) == (1, True)
    (tmp_path / "wrong.toml").write_text("prot = 1")
    refused = in_process(["doctor", "--config", str(tmp_path / "wrong.toml")])
    assert (refused[0], "unknown setting 'prot'" in refused[2]) == (2, True)


async def test_a_broker_that_runs_at_the_port_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/queue.db"
    async with Broker.open(store) as broker:
        sockets = open_sockets("127.0.0.1", 0)
        port = str(sockets[0].getsockname()[1])
        server = HttpApp(broker).serve()
        await server.listen(sockets)
        try:
            _, found = await examined("--store", store, "--port", port)
            assert "port" not in found
            made = await broker.keys.create("first", role="admin")
            _, out, _ = await asyncio.to_thread(in_process, ["doctor", "--store", store, "--port", port])
            assert re.search(r"^ok  port .* a broker runs there and requires a key", out, re.MULTILINE), out
            monkeypatch.setenv("FAIRLANE_KEY", made.key)
            _, out, _ = await asyncio.to_thread(in_process, ["doctor", "--store", store, "--port", port])
            assert re.search(r"^ok  port .* fairlane [\d.]+\S* runs there, and its store answers", out, re.MULTILINE), (
                out
            )
        finally:
            await server.close(grace_seconds=1.0)


async def test_a_server_that_commits_nothing_is_told_of(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    database = url.partition("@/")[2].partition("?")[0]
    async with postgres18.connect(database) as connection:
        await connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    code, out, _ = await asyncio.to_thread(in_process, ["doctor", "--store", url])
    assert code == 1
    assert re.search(r"^no  commit +the database is read-only", out, re.MULTILINE), out


async def test_a_server_that_is_well_is_found_so(postgres: PostgresServer, fresh_database: FreshDatabase) -> None:
    url = await fresh_database(postgres)
    _, out, _ = await asyncio.to_thread(in_process, ["doctor", "--store", url])
    lines = {line[4:24].strip(): line for line in out.splitlines()}
    for check in ("version", "privileges", "clock", "commit", "sessions", "notify"):
        assert lines[check].startswith("ok  "), out
    async with postgres.connect("postgres") as connection:
        version = await connection.fetchval("SHOW server_version")
    assert lines["version"].endswith(f"PostgreSQL {version}"), "15.20 is not 15.0"


async def test_what_is_unsafe_or_not_allowed_is_told_with_its_cure(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await fresh_database(postgres18)
    database = url.partition("@/")[2].partition("?")[0]
    role = f"weak_{database}"
    async with postgres18.connect(database) as connection:
        await connection.execute(f"CREATE ROLE {role} LOGIN")
        await connection.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    monkeypatch.setattr("fairlane.store.postgres.doctor.time", lambda: time() + 3600)
    try:
        code, found = await examined("--store", url.replace("postgres@", f"{role}@"))
    finally:
        async with postgres18.connect(database) as connection:
            await connection.execute(f"DROP ROLE {role}")
    assert code == 1
    assert found["synchronous_commit"] == "set it to on: committed messages could be lost"
    assert found["privileges"].startswith("GRANT CREATE ON DATABASE")
    assert found["clock"] == "let both machines keep time by NTP"
    assert not found.keys() & {"version", "sessions", "notify"}


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/nothing", "postgresql:///nothing?host=/nowhere"])
async def test_a_store_that_cannot_be_reached_is_the_last_finding(url: str) -> None:
    code, found = await examined("--store", url)
    assert (code, found["store"]) == (1, "start it, or correct the URL of the store")


@pytest.fixture(scope="module")
def pooler(postgres18: PostgresServer) -> Iterator[Path]:
    with pooled(postgres18) as directory:
        yield directory


@needs_pooler
async def test_a_pooler_that_shares_sessions_is_found_and_what_to_do_about_it(
    pooler: Path, postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    direct = await fresh_database(postgres18)
    database = direct.partition("@/")[2].partition("?")[0]
    url = f"postgresql://postgres@/{database}?host={pooler}&port={PORT}"
    _, out, _ = await asyncio.to_thread(in_process, ["doctor", "--store", url])
    assert "a pooler gives each transaction another, and " in out
    keeps = "and keeps prepared statements" in out  # newer ones do
    sessions = {} if keeps else {"sessions": "serve with --no-statement-cache"}
    notify = {"notify": "name the server itself with --listen-url"}
    for arguments, left in (
        ([], sessions | notify),
        (["--listen-url", url, "--no-statement-cache"], notify),
        (["--listen-url", direct], sessions),
        (["--listen-url", direct, "--no-statement-cache"], {}),
    ):
        _, found = await examined("--store", url, *arguments)
        assert {check: advice for check, advice in found.items() if check in ("sessions", "notify")} == left
