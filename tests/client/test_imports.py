"""The base install is the user's side only: what it imports must not need the server's libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fairlane

SERVER_ONLY = ("apsw", "asyncpg", "httptools", "uvloop", "fairlane.broker", "fairlane.store", "fairlane.http")


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


@pytest.mark.parametrize("statement", ["import fairlane.blocking", "import fairlane.client, fairlane.cli.main"])
def test_a_client_needs_no_library_for_http(statement: str) -> None:
    assert not imported(statement) & {"aiohttp", "yarl"}


def test_a_broker_that_calls_nobody_does_not_pay_for_the_client() -> None:
    assert not imported("import fairlane.cli.broker_process") & {"aiohttp", "yarl"}


def test_a_command_pays_only_for_what_it_uses() -> None:
    """Each is a process of its own, and most of its time is imports."""
    assert not imported("import fairlane.cli.main") & {"rich.console", "rich.table", "asyncio"}


def test_public_names_are_sorted_and_there() -> None:
    assert fairlane.__all__ == sorted(fairlane.__all__)
    for name in fairlane.__all__:
        assert getattr(fairlane, name).__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = fairlane.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "statement",
    [
        "from fairlane import Broker",
        "import fairlane; fairlane.Broker",
        "import fairlane.testing",
        "import sys; sys.argv = ['fairlane', 'serve']; from fairlane.cli.main import main; main()",
    ],
)
def test_who_lacks_the_servers_libraries_is_told_in_a_line_how_to_get_them(statement: str) -> None:
    code = f"import sys\nfor name in ('apsw', 'asyncpg'): sys.modules[name] = None\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "pip install 'fairlane[server]'" in last
    assert "No module named" not in done.stderr
    if "main()" in statement:
        assert done.stderr.count("\n") == 1
