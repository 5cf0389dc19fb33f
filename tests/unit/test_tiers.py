"""Every test is in exactly one tier, and a directory that takes more CPU than its budget fails the run."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.conformance.configurations import CONFIGURATIONS
from tests.postgres import MAJORS
from tests.tiers import DIRECTORIES, STORES, tier_of

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]


def test_every_directory_of_tests_is_in_a_tier() -> None:
    assert set(DIRECTORIES) == {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert not list(TESTS.glob("test_*.py")), "a test lives in a directory"
    assert not [name for name, directory in DIRECTORIES.items() if not directory.quick and not directory.rest]


def test_every_store_configuration_is_in_a_tier() -> None:
    known = {one.name for one in CONFIGURATIONS} | {f"postgres{major}" for major in MAJORS}
    assert known | {"citus"} == STORES, "Citus is a configuration where the environment names a cluster"
    for directory in DIRECTORIES.values():
        assert directory.stores <= STORES


def test_every_smoke_test_exists() -> None:
    for name, directory in DIRECTORIES.items():
        if directory.smoke:
            path, _, test = directory.smoke.partition("::")
            assert f"def {test.partition('[')[0]}(" in (TESTS / name / path).read_text(), directory.smoke


def test_the_stores_of_a_test_decide_its_tier() -> None:
    test = "tests/{}/test_x.py::test_y{}".format
    assert tier_of(test("conformance", "[sqlite-one]")) == "quick"
    assert tier_of(test("conformance", "[one-postgres18]")) == "quick"
    assert tier_of(test("conformance", "[postgres16_uncached]")) == "rest"
    assert tier_of(test("http", "[sqlite]")) == tier_of(test("http", "")) == "quick"
    assert tier_of(test("http", "[postgres18]")) == "rest"
    assert tier_of(test("spec", "[postgres16]")) == "quick", "a directory without a rest has all its tests in quick"


TREE = {
    "tests/conformance/test_a.py": """
        import pytest
        @pytest.mark.parametrize("store", ["sqlite", "postgres18", "postgres16_uncached"])
        def test_a(store): pass
    """,
    "tests/http/test_b.py": """
        import pytest
        @pytest.mark.parametrize("store", ["sqlite", "postgres18"])
        def test_b(store): pass
        def test_c(): pass
    """,
    "tests/e2e/test_crashes.py": """
        import pytest
        @pytest.mark.parametrize("store", ["sqlite", "postgres18"])
        def test_a_broker_killed_under_load_loses_nothing_that_it_answered(store): pass
        def test_d(): pass
    """,
    "tests/faults/test_e.py": "def test_e(): pass",
    "tests/spec/test_f.py": "def test_f(): pass",
}


def make(pytester: pytest.Pytester, tree: dict[str, str]) -> None:
    pytester.makeconftest('pytest_plugins = ["tests.tiers", "tests.budgets"]')
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = 'function'\n")
    for name, text in tree.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


def ran(pytester: pytest.Pytester, tier: str) -> set[str]:
    result = pytester.inline_run("--tier", tier, "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.OK
    return {report.nodeid for report in result.getreports("pytest_runtest_logreport") if report.when == "call"}


def test_the_tiers_together_are_all_tests_and_none_is_in_both(pytester: pytest.Pytester) -> None:
    make(pytester, TREE)
    quick, rest, everything = (ran(pytester, tier) for tier in ("quick", "rest", "all"))
    assert len(everything) == 11
    assert quick | rest == everything
    assert not quick & rest
    assert len(quick) == 6


def test_a_directory_in_no_tier_fails_the_run(pytester: pytest.Pytester) -> None:
    make(pytester, {"tests/novel/test_a.py": "def test_a(): pass"})
    for tier in ("quick", "all"):
        result = pytester.runpytest_inprocess("--tier", tier, "-p", "no:cacheprovider")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(["*tests/novel is in no tier: add it to DIRECTORIES in tests/tiers.py"])


BURN = """
    import subprocess, sys, time

    def burn(then):
        code = f"import time\\nwhile time.process_time() < 0.6: pass\\n{then}"
        return subprocess.Popen([sys.executable, "-c", code])

    def test_a_child_that_was_waited_for():
        assert burn("").wait() == 0

    def test_a_child_that_is_left(children):
        children.append(burn("time.sleep(60)"))
        while sum(map(int, open(f"/proc/{children[0].pid}/stat").read().split()[13:15])) < 50:
            time.sleep(0.01)
"""
AFTERWARDS = """
    def test_the_child_ends(children):
        children[0].kill()
        children[0].wait()
"""
SMALL_BUDGETS = """
    import pytest
    from tests.tiers import DIRECTORIES, Directory

    pytest_plugins = ["tests.tiers", "tests.budgets"]
    DIRECTORIES.update(client=Directory(quick=1), spec=Directory(quick=1))

    @pytest.fixture(scope="session")
    def children():
        return []
"""


@pytest.mark.parametrize(
    ("options", "code"),
    [(["-n", "0"], pytest.ExitCode.OK), (["-n", "1", "--hold-budgets"], pytest.ExitCode.TESTS_FAILED)],
    ids=["printed", "held"],
)
def test_a_directory_over_its_budget_is_marked_and_fails_the_run_if_budgets_are_held(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int
) -> None:
    """The CPU of a child counts for the directory whose tests ran meanwhile, whether or not it has ended."""
    make(pytester, {"tests/client/test_a.py": BURN, "tests/spec/test_b.py": AFTERWARDS, "conftest.py": SMALL_BUDGETS})
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent}")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)
    result.assert_outcomes(passed=3)
    result.stdout.re_match_lines([r"client +2 +\d+\.\d +1 +\d+\.\d  OVER BUDGET", r"spec +1 +0\.\d +1 +\d+\.\d$"])
    assert result.ret == code
