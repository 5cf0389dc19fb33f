"""Commands in a terminal: `top` and its keys, the progress bar, `worker --watch` and confirmations."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.terminal import Terminal

APP = """
import fairlane

app = fairlane.App("jobs")

@app.handler("{queue}")
async def handle(number: int) -> None: ...
"""


def test_top_is_sorted_by_keys_fits_the_terminal_and_ends(fairlane: Command, queue: str) -> None:
    few, many = f"{queue}-a-few", f"{queue}-z-many"
    fairlane("push", few, "1")
    fairlane("push", many, "--file", "-", input="1\n" * 300)
    with Terminal(fairlane.environment, "top", "--seconds", "3600", "-n", "1000") as top:
        top.resize(200, 200)

        def order() -> list[str]:
            return [line.split()[0] for line in top.frame if line.startswith((few, many))]

        top.until(lambda: order() == [many, few])
        assert top.frame[-1] == "by pending; keys p r o d n sort, q quits"
        top.press("n")
        top.until(lambda: top.frame[-1].startswith("by name;"))
        assert order() == [few, many]
        for key, by in {"r": "rate", "o": "oldest", "d": "deadLetters", "p": "pending"}.items():
            top.press(key)
            top.until(lambda by=by: top.frame[-1].startswith(f"by {by};"))  # type: ignore[misc]
        top.press("x")  # which is none
        top.resize(70, 12)
        top.until(lambda: len(top.frame) <= 12 and max(map(len, top.frame)) <= 70)
        assert not top.restored, "keys come one by one"
        top.press("q")
        assert top.end() == 0
        assert top.restored
        assert top.text.endswith("\x1b[?25h\x1b[?1049l"), "what was there before is back, with the cursor"


def test_top_is_interrupted(fairlane: Command) -> None:
    with Terminal(fairlane.environment, "top", "--seconds", "3600") as top:
        top.until(lambda: top.frame)
        top.press("\x03")
        assert top.end() == 130
        assert (top.restored, "Traceback" in top.text) == (True, False)


def test_a_bar_shows_how_far_a_file_is_and_goes(fairlane: Command, tmp_path: Path) -> None:
    queue = "bar"
    file = tmp_path / "events.jsonl"
    file.write_text("1\n" * 1200)
    with Terminal(fairlane.environment, "push", queue, "--file", str(file)) as push:
        assert push.end() == 0
        assert f" 41 %  pushing to {queue}: 500 messages" in push.text
        assert "━━ 100 %  " in push.text
        assert push.text.endswith(f"\r\x1b[KPushed 1200 messages to {queue}.\r\n")


@pytest.mark.parametrize(("answer", "code", "said"), [("y", 0, "Deleted queue"), ("n", 1, "Cancelled."), ("", 1, "")])
def test_a_question_is_asked_and_only_yes_is_yes(
    fairlane: Command, queue: str, answer: str, code: int, said: str
) -> None:
    fairlane("push", queue, "1")
    with Terminal(fairlane.environment, "queue", "delete", queue) as asked:
        asked.until(lambda: "[y/N]" in asked.text)
        asked.press(f"{answer}\n")
        assert asked.end() == code
        assert said in asked.text


def test_a_question_is_interrupted(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "1")
    with Terminal(fairlane.environment, "queue", "delete", queue) as asked:
        asked.until(lambda: "[y/N]" in asked.text)
        asked.press("\x03")
        assert (asked.end(), "Traceback" in asked.text) == (130, False)
    assert fairlane("queue", "show", queue).code == 0


def test_a_worker_is_watched_above_its_log(fairlane: Command, queue: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(APP.format(queue=queue))
    with Terminal(fairlane.environment, "worker", "jobs:app", "--watch", cwd=tmp_path) as worker:
        worker.until(lambda: "per second" in worker.text)
        fairlane("push", queue, "1")
        worker.until(lambda: any(line.split()[:5] == [queue, "0", "of", "10", "1"] for line in _drawn(worker.text)))
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.end() == 0
        assert "\x1b[r" in worker.text, "all of the terminal moves again"
        assert "stopped" in worker.text


def _drawn(text: str) -> list[str]:
    return text.replace("\x1b[K", "").split("\r\n")
