"""Spellings of `--store`, which serve, doctor, key create and `Broker.open` read alike."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest

from fairlane import Broker
from fairlane.config import load_settings
from tests.broker_process import broker_process
from tests.cli.conftest import in_process
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

FILES = ["queue.db", "./queue.db", "{directory}/queue.db", "sqlite:///queue.db", "sqlite:///{directory}/queue.db"]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRLANE_PORT", "0")
    monkeypatch.setenv("FAIRLANE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("FAIRLANE_SERVER", "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("spelled", FILES)
async def test_a_file_is_found_by_every_spelling(spelled: str, tmp_path: Path) -> None:
    store = spelled.format(directory=tmp_path)
    async with Broker.open(store) as broker:
        await broker.push("orders", {"total": 42})
    code, out, err = await asyncio.to_thread(in_process, ["doctor", "--store", store, "--json"])
    assert (code in (0, 1), err) == (True, "")
    found = {one["check"]: one["is"] for one in json.loads(out)}
    assert "SQLite" in found["version"]
    assert "free in" in found["store"]
    code, out, err = await asyncio.to_thread(in_process, ["key", "create", "--role", "admin", "--store", store])
    assert code == 0, err
    with sqlite3.connect(tmp_path / "queue.db") as stored:
        assert stored.execute("select count(*) from api_keys").fetchone() == (1,)


@pytest.mark.parametrize("spelled", ["queue.db", "./queue.db", "{directory}/queue.db"])
def test_a_broker_serves_a_file_named_as_one(spelled: str, tmp_path: Path) -> None:
    with broker_process(spelled.format(directory=tmp_path)) as served:
        assert served.url
    assert (tmp_path / "queue.db").exists()


async def test_a_postgresql_is_found_by_both_schemes(postgres: PostgresServer, fresh_database: FreshDatabase) -> None:
    url = await fresh_database(postgres)
    for name, store in (("one", url), ("two", url.replace("postgresql://", "postgres://"))):
        async with Broker.open(store):
            pass
        _, out, err = await asyncio.to_thread(in_process, ["doctor", "--store", store, "--json"])
        assert "PostgreSQL" in {one["check"]: one["is"] for one in json.loads(out)}["version"], err
        words = ["key", "create", name, "--role", "admin", "--store", store]
        code, _, err = await asyncio.to_thread(in_process, words)
        assert code == 0, err


def test_the_embedded_postgresql_keeps_its_name() -> None:
    assert load_settings({"store": "postgres"}).store == "postgres"
    _, out, _ = in_process(["doctor", "--store", "postgres", "--json"])
    assert "embedded" in {one["check"]: one["is"] for one in json.loads(out)}["store"]


@pytest.mark.parametrize("command", [["serve"], ["doctor"], ["key", "create", "--role", "admin"]])
def test_a_name_of_no_store_is_refused_in_a_sentence(command: list[str]) -> None:
    for store in ("queue", "mysql://host/queue.db"):
        code, _, err = in_process([*command, "--store", store])
        assert (code, "names no store" in err) == (2, True), err


@pytest.mark.parametrize("command", [["serve"], ["key", "create", "--role", "admin"]])
def test_a_directory_that_is_not_there_is_named(command: list[str], tmp_path: Path) -> None:
    code, _, err = in_process([*command, "--store", f"sqlite:///{tmp_path}/none/queue.db"])
    assert (code, f"there is no directory {tmp_path}/none" in err) == (2, True), err


def test_a_doctor_names_the_directory_that_is_not_there(tmp_path: Path) -> None:
    code, out, _ = in_process(["doctor", "--store", f"{tmp_path}/none/queue.db"])
    assert (code, f"the directory {tmp_path}/none does not exist" in out) == (1, True), out
