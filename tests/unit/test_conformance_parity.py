"""The conformance suite notices a store configuration that ran no tests, or other tests than its siblings."""

from __future__ import annotations

from tests.conformance.configurations import CONFIGURATIONS
from tests.conformance.parity import missing, split_node, unequal

NAMES = [configuration.name for configuration in CONFIGURATIONS]


def nodes(test: str, names: list[str] = NAMES) -> list[str]:
    return [f"tests/conformance/test_x.py::{test}[{name}]" for name in names]


def test_a_node_names_its_test_and_its_configuration() -> None:
    assert split_node("a.py::test_x[sqlite-one-two]") == ("a.py::test_x[one-two]", "sqlite")
    assert split_node("a.py::test_x[one-postgres16_uncached]") == ("a.py::test_x[one]", "postgres16_uncached")
    assert split_node("a.py::test_x[one]") == ("a.py::test_x[one]", None)
    assert split_node("a.py::test_x") == ("a.py::test_x", None)


def test_no_configuration_is_named_like_a_part_of_another_id() -> None:
    assert len(set(NAMES)) == len(NAMES) == 4
    assert not any("-" in name for name in NAMES)


def test_a_suite_written_for_every_configuration_is_in_order() -> None:
    assert unequal([*nodes("test_a"), *nodes("test_b"), "tests/unit/test_y.py::test_c"]) == {}


def test_a_test_without_a_configuration_is_noticed() -> None:
    assert list(unequal([*nodes("test_a"), "tests/conformance/test_x.py::test_b"])) == [
        "tests/conformance/test_x.py::test_b"
    ]


def test_a_configuration_without_a_test_is_noticed() -> None:
    [finding] = unequal(nodes("test_a", NAMES[1:])).values()
    assert NAMES[0] in finding


def test_a_run_of_all_that_was_chosen_is_in_order() -> None:
    everything = [*nodes("test_a"), *nodes("test_b")]
    assert missing(everything, everything) == []
    assert missing(nodes("test_a", ["sqlite"]), nodes("test_a", ["sqlite"])) == []
    assert missing([], []) == []


def test_a_configuration_that_was_skipped_is_noticed() -> None:
    [finding] = missing(nodes("test_a"), nodes("test_a", NAMES[:-1]))
    assert finding.endswith(f"did not run on {NAMES[-1]}")
