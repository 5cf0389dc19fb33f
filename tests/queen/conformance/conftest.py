"""The fixtures of tests/conformance."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from tests.conformance.conftest import backend, harness, kept_sessions, loop_guard

__all__ = ["backend", "harness", "kept_sessions", "loop_guard"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests on one loop, like those of tests/conformance."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
