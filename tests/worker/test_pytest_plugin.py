"""The fixtures of `fairlane.pytest_plugin`, in runs of pytest of their own."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
CONFTEST = """
import pytest
from fairlane import App, Context, Retry

app = App("shop")

@app.handler("orders")
async def bill(order: dict, ctx: Context) -> Retry | None:
    if order["id"] == 13 and ctx.attempt == 1:
        raise ValueError("closed")
    ctx.push("invoices", {"order": order["id"]})

@pytest.fixture
def fairlane_app():
    return app
"""
SYNC = """
def test_an_order_is_billed(fairlane_test):
    outcome = fairlane_test.push("orders", {"id": 1})
    assert outcome.status == "queued"
    fairlane_test.drain("orders")
    assert fairlane_test.pushed("invoices") == [{"order": 1}]
    assert fairlane_test.client.result("orders", outcome.transaction_id) is None
    assert not fairlane_test.dead_letters("orders")

def test_each_test_has_a_store_of_its_own(fairlane_test, fairlane_clock):
    assert fairlane_test.pushed("invoices") == []
    fairlane_test.client.queues.configure("orders", retry_delay_ms=60_000)
    fairlane_test.push("orders", {"id": 13})
    fairlane_test.drain("orders")
    assert fairlane_test.pushed("invoices") == []
    fairlane_clock.advance(60)
    fairlane_test.drain("orders")
    assert fairlane_test.pushed("invoices") == [{"order": 13}]
"""
ASYNC = """
import pytest

@pytest.mark.asyncio
async def test_an_order_is_billed(async_fairlane_test, fairlane_clock):
    assert async_fairlane_test.clock is fairlane_clock
    await async_fairlane_test.push("orders", {"id": 1})
    await async_fairlane_test.drain()
    assert await async_fairlane_test.pushed("invoices") == [{"order": 1}]
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest as a program, because this process has a plugin for its own event loops."""
    installed = {point.name for point in entry_points(group="pytest11")}
    named = [] if "fairlane" in installed else ["-p", "fairlane.pytest_plugin"]
    if "no:asyncio" not in arguments:
        named += ["-o", "asyncio_default_fixture_loop_scope=function"]
    return pytester.runpytest_subprocess(*named, "-p", "no:schemathesis", "-W", "error", *arguments)


def test_plain_tests_get_an_app_on_a_store_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SYNC)
    run(pytester).assert_outcomes(passed=2)


def test_plain_tests_need_no_plugin_for_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SYNC)
    pytester.path.joinpath("pytest_asyncio.py").write_text("raise ImportError", encoding="utf-8")
    run(pytester, "-p", "no:asyncio").assert_outcomes(passed=2)


def test_coroutines_get_an_app_on_their_own_loop(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(ASYNC)
    run(pytester).assert_outcomes(passed=1)


def test_a_missing_app_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SYNC)
    done = run(pytester)
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(["*define a fixture `fairlane_app` that returns the App to test*"])


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"fairlane": "fairlane.pytest_plugin"}
