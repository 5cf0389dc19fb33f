"""The two tiers of the tests: `make test` runs `quick`, and `make test-all` adds `rest`.

`pytest --tier quick` and `pytest --tier rest` run one tier. Without the option every test runs. Each test is in
exactly one tier. A new directory of tests needs a line in `DIRECTORIES`, and a new store configuration a word in
`STORES`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

STORES = {"sqlite", "postgres16", "postgres18", "postgres16_uncached", "postgres18_cells", "citus"}
"""Words of a test's id that name the store it runs on."""

QUICK_STORES = frozenset({"sqlite", "postgres18"})


@dataclass(frozen=True)
class Directory:
    """A directory of tests: which of its tests are in which tier, and the CPU seconds they may take there."""

    quick: int = 0
    """CPU seconds of its quick tests. 0 if all of them are in the rest."""
    rest: int = 0
    """CPU seconds of its other tests. 0 if all of them are quick."""
    smoke: str = ""
    """The one test that is quick. Empty if all are, on the stores below."""
    stores: frozenset[str] = QUICK_STORES
    """Stores of the quick tests. A test that names no store is quick, too."""


DIRECTORIES = {
    "availability": Directory(rest=30),
    "bench": Directory(rest=40),
    "browser": Directory(
        quick=15, rest=260, smoke="test_pages.py::test_a_page_loads_and_shows_what_the_api_says[overview]"
    ),
    "cli": Directory(quick=40),
    "cells": Directory(quick=45),
    "cell_moves": Directory(rest=90),
    "client": Directory(quick=30),
    "commands": Directory(quick=15),
    "conformance": Directory(quick=200, rest=280),
    "docs": Directory(rest=100),
    "e2e": Directory(
        quick=15,
        rest=90,
        smoke="test_crashes.py::test_a_broker_killed_under_load_loses_nothing_that_it_answered[sqlite]",
    ),
    "faults": Directory(rest=150),
    "fuzz": Directory(rest=60),
    "campaign": Directory(rest=20),
    "history": Directory(rest=500),
    "webhooks": Directory(quick=15),
    "http": Directory(quick=150, rest=150, stores=frozenset({"sqlite"})),
    "moving": Directory(quick=60, rest=60),
    "packaging": Directory(rest=100),
    "poller": Directory(quick=20),
    "pooler": Directory(rest=15),
    "queen": Directory(rest=180),
    "soak": Directory(rest=40),
    "spec": Directory(quick=30),
    "staged": Directory(quick=70),
    "stateful": Directory(rest=150),
    "tokens": Directory(quick=15),
    "upgrade": Directory(rest=40),
    "unit": Directory(quick=100, rest=15),
    "worker": Directory(quick=60),
}


def directory_of(node_id: str) -> str:
    """Return the name of the directory below tests/, or the file name of a test that is in none."""
    return node_id.partition("::")[0].removeprefix("tests/").partition("/")[0]


def tier_of(node_id: str) -> str:
    """Return the tier of a test. A test of an unknown directory is quick, where it fails."""
    directory = DIRECTORIES.get(directory_of(node_id), Directory(quick=1))
    if not directory.rest:
        return "quick"
    if not directory.quick:
        return "rest"
    if directory.smoke:
        return "quick" if node_id.endswith(f"/{directory.smoke}") else "rest"
    words = node_id.partition("[")[2].removesuffix("]").split("-")
    return "quick" if STORES.intersection(words) <= directory.stores else "rest"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=["quick", "rest", "all"], default="all", help="the tests to run, see tests/tiers.py"
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    citus = (
        "the cluster of FAIRLANE_TEST_CITUS"
        if os.environ.get("FAIRLANE_TEST_CITUS")
        else "skipped, see docs/scaling.md"
    )
    return [f"tier: {config.option.tier}", f"Citus: {citus}"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the directories that have nothing in this tier, which is cheaper than to collect and drop them."""
    if collection_path.parent == config.rootpath / "tests" and config.option.tier != "all":
        directory = DIRECTORIES.get(collection_path.name)
        if directory is not None and not getattr(directory, config.option.tier):
            return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.tier != "all":
        chosen = [item for item in items if tier_of(item.nodeid) == config.option.tier]
        config.hook.pytest_deselected(items=[item for item in items if tier_of(item.nodeid) != config.option.tier])
        items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Not at the collection: a worker process that fails there ends the whole run without a message.
    if directory_of(item.nodeid) not in DIRECTORIES:
        pytest.fail(
            f"tests/{directory_of(item.nodeid)} is in no tier: add it to DIRECTORIES in tests/tiers.py", pytrace=False
        )
