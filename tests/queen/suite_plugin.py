"""A pytest plugin to run the newest client's own tests against a broker of ours, in that client's environment."""

from __future__ import annotations

import os

import pytest
import pytest_asyncio
from queen import Queen

# Tests of endpoints that this broker does not have.
_MISSING = {
    "test_kv.py": "the key-value store",
    "test_locks.py": "locks, which are rows of the key-value store",
    "test_timers.py": "timers",
    "test_transaction_kv_timers.py": "the key-value store and timers within a transaction",
    "test_reads.py": "fetch and partitions/changed",
}

# Files whose tests use the same queues. Other files share nothing.
_TOGETHER = {"test_push.py": "plain queue", "test_queue.py": "plain queue"}


@pytest_asyncio.fixture
async def client():
    # A full queue answers 429, which the client retries ten times, five seconds apart, unless configured otherwise.
    async with Queen(os.environ["QUEEN_SERVER_URL"], retry_429={"max_attempts": 1}) as client:
        yield client


def pytest_ignore_collect(collection_path):
    return True if collection_path.name in _MISSING else None


def pytest_collection_modifyitems(items):
    """Spread the tests over processes, because most of their time is waiting."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_TOGETHER.get(item.path.name, item.nodeid)))
