"""The suite fails if a store configuration ran no tests, or other tests than its siblings.

Registered for the whole session, because the process that hands tests out to workers collects none itself
and would not read a conftest of this directory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

from tests.conformance.configurations import CONFIGURATIONS

_NAMES = frozenset(configuration.name for configuration in CONFIGURATIONS)
_DIRECTORIES = ("tests/conformance/", "tests/queen/conformance/")


def split_node(node_id: str) -> tuple[str, str | None]:
    """Split a node id into (test with its other parameters, configuration). Returns None without a configuration."""
    test, bracket, parameters = node_id.partition("[")
    if not bracket:
        return test, None
    parts = parameters.removesuffix("]").split("-")
    named = [part for part in parts if part in _NAMES]
    others = "-".join(part for part in parts if part not in _NAMES)
    return f"{test}[{others}]", named[0] if len(named) == 1 else None


def by_test(node_ids: Iterable[str]) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = defaultdict(set)
    for node_id in node_ids:
        if node_id.startswith(_DIRECTORIES):
            test, configuration = split_node(node_id)
            found[test].add(configuration)
    return found


def unequal(node_ids: Iterable[str]) -> dict[str, str]:
    """Return the problems of a full collection: every test must exist once for each configuration."""
    return {
        test: f"this test is not written for {', '.join(sorted(_NAMES - configurations))}"
        for test, configurations in by_test(node_ids).items()
        if configurations != _NAMES
    }


def missing(chosen: Iterable[str], ran: Iterable[str]) -> list[str]:
    """Return the problems of a finished run: every selected test must have run where it was selected."""
    done = by_test(ran)
    return [
        f"{test} did not run on {', '.join(sorted(map(str, configurations - done[test])))}"
        for test, configurations in by_test(chosen).items()
        if configurations - done[test]
    ]


class Parity:
    def __init__(self) -> None:
        self.chosen: set[str] = set()
        self.ran: set[str] = set()
        self.unequal: dict[str, str] = {}
        self.findings: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: Sequence[pytest.Item]) -> None:
        # Before -k and -m deselect tests. Naming a single parametrised test means just that one.
        if not any("[" in argument for argument in session.config.args):
            self.unequal = unequal(item.nodeid for item in items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # Not at collection: a worker that stops there ends the whole run without a message.
        finding = self.unequal.get(split_node(item.nodeid)[0])
        if finding:
            pytest.fail(finding, pytrace=False)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not session.config.option.collectonly:
            self.chosen.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.chosen.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.skipped:
            self.ran.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # A failed or interrupted run has already said so. A worker runs only its share.
        if exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
            self.findings = missing(self.chosen, self.ran)
            if self.findings:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.findings:
            terminalreporter.section("store configurations that ran different tests", red=True)
            for finding in self.findings:
                terminalreporter.line(finding)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Parity(), "conformance-parity")
