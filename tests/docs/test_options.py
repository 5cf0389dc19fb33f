"""Every option that a queue accepts is in docs/queues.md, with the test that fails without it."""

from __future__ import annotations

from fairlane.model.queue import QueueOptions
from tests.docs.options import OPTIONS, PAGE, written
from tests.docs.test_snippets import TESTS


def test_every_option_of_a_queue_is_described() -> None:
    assert set(OPTIONS) == set(QueueOptions.__struct_fields__)


def test_the_page_has_the_table_that_the_code_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run `python -m tests.docs`"


def test_every_test_that_enforces_an_option_runs_on_every_store() -> None:
    suite = "".join(path.read_text(encoding="utf-8") for path in (TESTS / "conformance").glob("test_*.py"))
    for option, (_, tests) in OPTIONS.items():
        assert tests, f"{option} is accepted, and nothing shows that it does anything"
        for test in tests:
            assert f"def {test}(" in suite, test
