"""Error responses: the text for clients, and the details that only the log gets."""

from __future__ import annotations

import io
import logging

import pytest

from fairlane.cli.processes.logs import SuppressingHandler
from fairlane.errors import OutcomeUnknown, StoreCorrupt, StoreFull, StoreUnavailable
from fairlane.http.problems import problem
from fairlane.http.server import Request


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


def test_the_same_mistake_is_logged_whole_once_in_a_while() -> None:
    def fail(number: int) -> None:
        raise ValueError(f"{number} is no number")

    log, out = logging.getLogger("fairlane.http.problems"), io.StringIO()
    log.addHandler(lines := SuppressingHandler(out))
    try:
        for number in range(100):
            with pytest.raises(ValueError, match="no number") as failed:
                fail(number)
            assert problem(failed.value).status == 500
        with pytest.raises(ValueError, match="elsewhere") as failed:
            raise ValueError("elsewhere")
        problem(failed.value)
    finally:
        log.removeHandler(lines)
    assert out.getvalue().count("Traceback") == 2
    lines.close()


def test_an_unexpected_error_and_its_answer_have_the_id_of_the_request(caplog: pytest.LogCaptureFixture) -> None:
    asked = Request("GET", b"/", {b"x-request-id": b"r-17"}, b"", "127.0.0.1")
    assert (b"x-request-id", b"r-17") in problem(ValueError("no"), asked).headers
    assert "request r-17" in caplog.text
    [(_, made)] = [one for one in problem(ValueError("no")).headers if one[0] == b"x-request-id"]
    assert made.decode() in caplog.text
