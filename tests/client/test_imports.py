"""Imports of the client, the worker and the command line, which must work without the libraries of any extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fairlane

SERVER_ONLY = ("apsw", "asyncpg", "httptools", "uvloop", "fairlane.broker", "fairlane.store", "fairlane.http")
WORKER_EXTRA = ("aiohttp", "cronsim", "lark", "tzdata", "watchfiles", "yarl")


def imported(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import fairlane",
        "import fairlane; fairlane.Client",
        "from fairlane import Client, Message",
        "from fairlane.client import *",
        "import fairlane.blocking",
        "import fairlane.cli.main",
    ],
)
def test_the_users_side_imports_nothing_of_the_servers(statement: str) -> None:
    assert not imported(statement) & set(SERVER_ONLY)


@pytest.mark.parametrize(
    "statement",
    [
        "import fairlane.blocking",
        "import fairlane.client, fairlane.cli.main",
        "from fairlane import App; App().every('5m')(lambda: None)",
    ],
)
def test_a_client_and_a_plain_worker_need_no_library_of_the_worker_extra(statement: str) -> None:
    assert not imported(statement) & set(WORKER_EXTRA)


def test_a_broker_that_calls_nobody_does_not_pay_for_the_client() -> None:
    assert not imported("import fairlane.cli.processes.broker_process") & {"aiohttp", "yarl"}


def test_a_command_pays_only_for_what_it_uses() -> None:
    """Each command is a process of its own, and most of its time is imports."""
    assert not imported("import fairlane.cli.main") & {"rich.console", "rich.table", "asyncio"}


def test_public_names_are_sorted_and_there() -> None:
    assert fairlane.__all__ == sorted(fairlane.__all__)
    for name in fairlane.__all__:
        assert getattr(fairlane, name).__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = fairlane.Nothing


COMMAND = "import sys; sys.argv = ['fairlane', {}]; from fairlane.cli.main import main; main()"


@pytest.mark.parametrize(
    ("extra", "libraries", "statement"),
    [
        ("server", ("apsw", "asyncpg"), "from fairlane import Broker"),
        ("server", ("apsw", "asyncpg"), "import fairlane; fairlane.Broker"),
        ("server", ("apsw", "asyncpg"), "import fairlane.testing"),
        ("server", ("apsw", "asyncpg"), COMMAND.format("'serve'")),
        ("worker", WORKER_EXTRA, "import fairlane.poller"),
        ("worker", WORKER_EXTRA, "from fairlane import App; App().every(cron='0 7 * * *')(print)"),
        ("worker", WORKER_EXTRA, COMMAND.format("'spec', 'check', 'examples/incidents/incidents.fairlane'")),
        ("worker", WORKER_EXTRA, COMMAND.format("'worker', 'run', 'shop:app', '--reload'")),
        ("worker", WORKER_EXTRA, COMMAND.format("'poll', 'https://example.com/orders', '--queue', 'orders'")),
    ],
)
def test_a_missing_library_is_one_line_that_names_the_extra(
    extra: str, libraries: tuple[str, ...], statement: str
) -> None:
    code = f"import sys\nfor name in {libraries}: sys.modules[name] = None\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert f"pip install 'fairlane[{extra}]'" in last
    assert "No module named" not in done.stderr
    if "main()" in statement:
        assert done.stderr.count("\n") == 1
