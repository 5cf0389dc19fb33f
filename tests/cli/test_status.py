"""`fairlane status`, `top`, `completion`, and the commands of messages, traces and pauses."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.broker_process import FAIRLANE
from tests.cli.conftest import Command
from tests.queen_package import INSTALLED

TRACE = "0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10"


def test_status_is_one_screen(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "1")
    shown = fairlane("status")
    assert [line.split("  ")[0] for line in shown.out.splitlines()[:8]] == [
        *("broker", "store", "queues", "messages", "dead", "a second", "p99", "journal")
    ]
    assert "sqlite, connected" in shown.out
    told = fairlane("status", "--json").json
    assert told["health"]["status"] == "healthy"
    assert told["overview"]["messages"]["pending"] >= 1


def test_top_without_a_terminal_is_printed_once(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "1")
    assert re.search(rf"{queue} +1 +0 +0 ", fairlane("top", "--sort", "name", "-n", "1000").out)
    assert queue in [one["name"] for one in fairlane("top", "--json", "-n", "1000").json]
    assert fairlane("top", "--sort", "beauty").code == 2


def test_a_message_is_listed_shown_retried_given_up_and_deleted(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, '{"n": 1}', "--id", "it", "--trace-id", TRACE)
    [head] = fairlane("message", "list", queue, "--json").json["messages"]
    where = (head["partitionId"], "it")
    assert '{"n": 1}' in fairlane("message", "show", *where).out
    assert fairlane("message", "show", *where, "--json").json["transactionId"] == "it"
    assert queue in fairlane("trace", "show", TRACE).out
    fairlane("pop", queue)
    assert fairlane("message", "retry", *where).err.startswith("Pushed message it again as ")
    assert (fairlane("message", "delete", *where).code, fairlane("message", "delete", *where, "--yes").code) == (2, 0)
    assert fairlane("message", "show", *where).code == 2
    if INSTALLED:
        assert fairlane("trace", "list").code == fairlane("trace", "notes", "x").code == 0


def test_a_dead_letter_is_shown_whole(fairlane: Command, queue: str) -> None:
    fairlane("queue", "create", queue, "--retry-limit", "0")
    fairlane("push", queue, '{"n": 1}')
    taken = fairlane("pop", queue, "--no-ack", "--json").out
    fairlane("ack", "--status", "failed", "--error", "broken", input=taken)
    [letter] = fairlane("dlq", "list", queue, "--json").json
    shown = fairlane("dlq", "show", queue, letter["id"])
    assert all(text in shown.out for text in ("broken", '{"n": 1}'))
    assert fairlane("dlq", "show", queue, "nobody's").code == 2


def test_a_message_may_be_given_its_time(fairlane: Command, queue: str) -> None:
    assert fairlane("push", queue, "1", "--deliver-at", "2099-01-01").err.startswith("scheduled")
    wrong = fairlane("push", queue, "1", "--deliver-at", "soon")
    assert (wrong.code, wrong.err) == (
        2,
        "fairlane: --deliver-at is 'soon'; it must be a time like 2026-01-31T12:00:00Z\n",
    )


def test_pauses_are_shown_and_other_words_are_refused(fairlane: Command) -> None:
    assert fairlane("pause", "show").err == "Pops are not paused. Pushes are not paused.\n"
    assert fairlane("pause", "clear", "pops").err == "Pops are not paused.\n"
    assert fairlane("pause", "set", "everything").code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(fairlane: Command, shell: str) -> None:
    assert "_FAIRLANE_COMPLETE" in fairlane("completion", shell).out


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("queue s", "show set scheduled"),
        ("pau", "pause"),
        ("--server http://127.0.0.1:1 queue cl", "clear"),
        ("schedule set x q --missed ", "skip once all"),
        ("pop --no", "--no-ack"),
        ("pause set pu", "pushes"),
        ("completion ", "bash zsh fish"),
        ("queue show ", ""),
    ],
)
def test_commands_are_completed_in_a_shell(typed: str, found: str) -> None:
    words = " ".join(f"'{word}'" for word in f"fairlane {typed}".split(" "))
    script = f"""eval "$('{FAIRLANE}' completion bash)"; PATH='{Path(FAIRLANE).parent}':$PATH
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1));
        _fairlane_completion fairlane; echo "${{COMPREPLY[*]}}" """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (found.split(), "")


@pytest.mark.parametrize("typed", ["spec check ", "push orders --file ", "serve --tls-cert ", "spec plan x --against "])
def test_file_names_are_completed_where_a_file_is_expected(typed: str) -> None:
    words = f"fairlane {typed}"
    asked = {"_FAIRLANE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
    done = subprocess.run([FAIRLANE], env=os.environ | asked, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("file,\n", "")
