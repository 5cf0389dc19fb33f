"""Counts are cached where counting is expensive. The list of queues and their options never are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlane.broker import count_cache as counts
from fairlane.broker.peer_stats import PeerStats
from fairlane.broker.statistics import Statistics
from fairlane.model.queue import QueueOptions
from fairlane.store.sqlite.store import SqliteStore
from fairlane.telemetry import Telemetry


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(str(tmp_path / "queue.db"))
    yield store
    await store.close()


@pytest.fixture(autouse=True)
def dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every count expensive, so that it is cached for ten seconds."""
    monkeypatch.setattr(counts, "CHEAP_SECONDS", 0.0)
    monkeypatch.setattr(counts, "_SHARE", 1e9)


async def test_a_queue_that_was_just_made_is_there_with_its_labels(store: SqliteStore) -> None:
    counting = Statistics(store, "default", PeerStats(Telemetry()))
    await store.queues.ensure("default", "mail")
    assert [queue.name for queue, _ in await counting.queues()] == ["mail"]
    await store.queues.ensure("default", "news")
    await store.queues.configure("default", "mail", QueueOptions(), namespace="shop", task="send")
    found = {queue.name: (queue.namespace, queue.task) for queue, _ in await counting.queues()}
    assert found == {"mail": ("shop", "send"), "news": ("news", "")}


async def test_a_queue_that_was_just_deleted_is_gone(store: SqliteStore) -> None:
    counting = Statistics(store, "default", PeerStats(Telemetry()))
    await store.queues.ensure("default", "mail")
    await counting.queues()
    await store.queues.delete("default", "mail")
    assert await counting.queues() == []


async def test_the_numbers_of_a_dear_count_serve_again(store: SqliteStore) -> None:
    counting = Statistics(store, "default", PeerStats(Telemetry()))
    queue = await store.queues.ensure("default", "mail")
    [(_, before)] = await counting.queues()
    await store.queues.ensure_partitions(queue.id, ["a", "b"])
    [(_, after)] = await counting.queues()
    assert (before.partitions, after.partitions) == (0, 0)
    assert counting.age_seconds() == 0
