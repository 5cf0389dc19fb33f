"""Stores are named by a URL or by the file they are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import Broker, InvalidRequest
from fairlane.store.opening import store_url


async def test_a_broker_opens_the_file_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with Broker.open("queue.db") as broker:
        await broker.push("orders", {"total": 42})
    async with Broker.open(tmp_path / "queue.db") as broker:
        [message] = await broker.pop("orders")
        assert message.data == {"total": 42}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("queue.db", "sqlite:///queue.db"),
        ("/var/lib/queue.sqlite3", "sqlite:////var/lib/queue.sqlite3"),
        (Path("data/queue"), "sqlite:///data/queue"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql://host/queue.db", "postgresql://host/queue.db"),
    ],
)
def test_a_file_is_as_good_as_its_url(given: str | Path, url: str) -> None:
    assert store_url(given) == url


@pytest.mark.parametrize("given", ["postgres", "queue", "", "mysql://host/queue.db", 7])
async def test_what_names_no_store_is_refused_in_a_sentence(given: str) -> None:
    with pytest.raises(InvalidRequest, match=r"names no store|a store is named by"):
        async with Broker.open(given):
            pass
