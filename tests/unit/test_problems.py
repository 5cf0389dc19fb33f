"""What strangers are told of errors, and what the log is."""

from __future__ import annotations

import logging

import pytest

from fairlane.errors import OutcomeUnknown, StoreCorrupt, StoreFull, StoreUnavailable
from fairlane.http import problems
from fairlane.http.problems import Seldom, problem


@pytest.fixture(autouse=True)
def nothing_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "_seldom", Seldom(60.0))


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreFull, StoreCorrupt, OutcomeUnknown])
def test_what_the_store_said_is_in_the_log_and_not_in_the_answer(
    kind: type[StoreUnavailable], caplog: pytest.LogCaptureFixture
) -> None:
    inside = "[Errno 111] connect to 10.0.0.7:5432 failed (08001)"
    answer = problem(kind(inside))
    assert answer.status == 503
    assert kind.code.encode() in answer.body
    assert b"10.0.0.7" not in answer.body
    assert inside in caplog.text


def test_the_same_mistake_is_logged_whole_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    def fail(number: int) -> None:
        raise ValueError(f"{number} is no number")

    for number in range(100):
        with pytest.raises(ValueError, match="no number") as failed:
            fail(number)
        assert problem(failed.value).status == 500
    with pytest.raises(ValueError, match="elsewhere") as failed:
        raise ValueError("elsewhere")
    problem(failed.value)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert caplog.text.count("Traceback") == 2
