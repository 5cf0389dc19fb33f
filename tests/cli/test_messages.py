"""`fairlane push`, `pop` and `tail`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fairlane.blocking import Client
from tests.cli.conftest import Command


def test_a_pushed_message_is_popped(fairlane: Command, queue: str) -> None:
    pushed = fairlane("push", queue, '{"total": 42}', "--partition", "customer-7")
    assert (pushed.code, pushed.out) == (0, "")
    assert pushed.err.startswith("queued as ")
    popped = fairlane("pop", queue)
    assert popped.code == 0
    assert popped.out.endswith('Z  customer-7  {"total": 42}\n')


def test_programs_read_json(fairlane: Command, queue: str) -> None:
    pushed = fairlane("push", queue, "[1]", "--id", "t", "--type", "order", "--header", "a=b=c", "--json").json
    assert (pushed["status"], pushed["transactionId"]) == ("queued", "t")
    again = fairlane("push", queue, "[2]", "--id", "t", "--json").json
    assert (again["status"], again["messageId"]) == ("duplicate", pushed["messageId"])
    [message] = fairlane("pop", queue, "--json", "--batch", "5").lines
    assert (message["id"], message["transactionId"], message["data"]) == (pushed["messageId"], "t", [1])
    assert (message["type"], message["headers"], message["partition"]) == ("order", {"a": "b=c"}, "Default")


def test_what_was_printed_is_finished_unless_it_is_to_stay_leased(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "1")
    fairlane("push", queue, "2")
    assert fairlane("pop", queue).code == 0
    assert fairlane("pop", queue, "--no-ack", "--lease-seconds", "60").out.endswith("  2\n")
    empty = fairlane("pop", queue)
    assert (empty.code, empty.out, empty.err) == (1, "", f"Queue {queue} has no messages to pop.\n")


def test_a_message_is_read_from_the_input(fairlane: Command, queue: str) -> None:
    assert fairlane("push", queue, "-", input='{\n  "a": "ü"\n}\n').code == 0
    assert fairlane("pop", queue, "--json").json["data"] == {"a": "ü"}


def test_every_line_of_a_file_is_a_message(fairlane: Command, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(1200)) + "\n")
    pushed = fairlane("push", queue, "--file", str(file), "--partition", "p")
    assert (pushed.code, pushed.err) == (0, f"Pushed 1200 messages to {queue}.\n")
    popped = fairlane("pop", queue, "--batch", "2000", "--json").lines
    assert [message["data"]["n"] for message in popped] == list(range(1200))
    assert fairlane("push", queue, "--file", "-", "--json", input="1\n2\n").json == {"queue": queue, "pushed": 2}


def test_a_bad_line_is_named_and_those_before_it_are_pushed(fairlane: Command, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("1\n2\n{oops\n4\n")
    pushed = fairlane("push", queue, "--file", str(file))
    assert pushed.code == 2
    assert f"Pushed 2 messages to {queue} before this error:" in pushed.err
    assert f"{file}, line 3 is not JSON" in pushed.err
    assert len(fairlane("pop", queue, "--batch", "9", "--json").lines) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give the message as JSON"),
        (("hello",), "the message is not JSON"),
        (("1", "--file", "x"), "give one message or --file, not both"),
        (("--file", "no-such-file"), "cannot read no-such-file: No such file or directory"),
        (("1", "--header", "oops"), "write NAME=VALUE"),
        (("--file", "-", "--id", "t"), "--id cannot be used with --file"),
        (("1", "--partition", ""), "partition must not be empty"),
    ],
)
def test_a_push_that_cannot_be_is_explained(
    fairlane: Command, queue: str, arguments: tuple[str, ...], says: str
) -> None:
    refused = fairlane("push", queue, *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("fairlane: ")
    assert says in refused.err
    assert "Traceback" not in refused.err


def test_a_pop_waits_if_it_is_told_to(fairlane: Command, queue: str) -> None:
    waiting = fairlane.start("pop", queue, "--wait", "20")
    fairlane("push", queue, '"here"')
    out, _ = waiting.communicate(timeout=20)
    assert (waiting.returncode, out.endswith('"here"\n')) == (0, True)


def test_a_pop_of_what_others_consume_points_to_tail(fairlane: Command, queue: str) -> None:
    fairlane("queue", "create", queue, "--max-size", "2")
    fairlane("push", queue, "1")
    assert fairlane("pop", queue).code == 0, "nobody consumes it"
    for n in range(2, 6):
        with Client(fairlane.url) as client:
            client.pop(queue, group="billing", auto_ack=True, batch=9)
        assert fairlane("push", queue, str(n)).code == 0, "the look fills nothing"
    refused = fairlane("pop", queue)
    assert (refused.code, refused.out) == (2, "")
    assert f"{queue} is consumed by billing" in refused.err
    assert f"fairlane tail {queue}" in refused.err
    assert fairlane("pop", queue, "--group", "billing").out.endswith("  5\n")
    with Client(fairlane.url) as client:
        client.pop(queue, auto_ack=True)
    assert fairlane("pop", queue, "--no-ack").code == 0, "its consumers name no group"


def test_a_broker_that_is_not_there_is_told_kindly(fairlane: Command) -> None:
    refused = fairlane("pop", "q", "--server", "http://127.0.0.1:1")
    assert refused.code == 75
    assert refused.err == (
        "fairlane: cannot reach http://127.0.0.1:1: connection refused\n"
        "Is a broker running there? `fairlane serve` starts one; --server names another.\n"
    )


def test_of_several_servers_one_is_enough(fairlane: Command, queue: str) -> None:
    assert fairlane("push", queue, "1", "--server", f"http://127.0.0.1:1, {fairlane.url}").code == 0


def test_tail_shows_the_newest_and_takes_nothing(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "--file", "-", input="".join(f"{n}\n" for n in range(15)))
    shown = fairlane("tail", queue, "--json")
    assert (shown.code, [line["data"] for line in shown.lines]) == (0, list(range(5, 15)))
    assert [line["data"] for line in fairlane("tail", queue, "-n", "2", "--json").lines] == [13, 14]
    assert len(fairlane("pop", queue, "--batch", "20", "--json").lines) == 15


def test_tail_follows_what_comes_until_it_is_interrupted(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, '"old"', "--partition", "a")
    following = fairlane.start("tail", "-f", queue)
    assert following.stdout is not None
    assert following.stdout.readline().endswith('a  "old"\n')
    fairlane("push", queue, '"new"', "--partition", "b")
    assert following.stdout.readline().endswith('b  "new"\n')
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=20)
    assert (following.returncode, out, err) == (130, "", "")


def test_what_was_not_printed_is_not_finished(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "--file", "-", input="".join(f'"{"x" * 1000}{n}"\n' for n in range(500)))
    popping = fairlane.start("pop", queue, "--batch", "500", "--lease-seconds", "1")
    assert popping.stdout is not None
    assert popping.stderr is not None
    with popping.stderr:
        popping.stdout.readline()
        popping.stdout.close()
        assert (popping.stderr.read(), popping.wait(20)) == ("", 1)
    assert len(fairlane("pop", queue, "--batch", "500", "--wait", "20", "--json").lines) == 1  # the first, alone


def test_payloads_and_names_cannot_steer_the_terminal(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, '"\u009b31m[bold]"', "--partition", "a\x1b[31m[red]")
    out = fairlane("pop", queue).out
    assert "\x1b" not in out
    assert "\u009b" not in out
    assert out.endswith('  a\\u001b[31m[red]  "\\u009b31m[bold]"\n')


def test_a_message_is_scheduled(fairlane: Command, queue: str) -> None:
    pushed = fairlane("push", queue, "1", "--delay-ms", "3600000", "--id", "it", "--json")
    assert (pushed.code, pushed.json["status"]) == (0, "scheduled")
    [listed] = fairlane("queue", "scheduled", queue, "--json").json["messages"]
    assert listed["transactionId"] == "it"
    assert fairlane("queue", "cancel", queue, "it").err == f"Cancelled message it of {queue}.\n"
    assert fairlane("queue", "cancel", queue, "it").code == 2


def test_messages_that_stay_leased_are_acked_by_a_command_of_their_own(fairlane: Command, queue: str) -> None:
    for n in range(3):
        fairlane("push", queue, str(n), "--partition", f"p{n}")
    taken = fairlane("pop", queue, "--batch", "3", "--no-ack", "--json")
    [first, *rest] = taken.lines
    named = (first["partitionId"], first["transactionId"], "--lease", first["leaseId"])
    done = fairlane("ack", *named)
    assert (done.code, done.err) == (0, "1 of 1 acked as completed.\n")
    wrong = fairlane("ack", *named[:2], "--lease", rest[0]["leaseId"].replace("-", "0", 1), "--status", "failed")
    assert (wrong.code, "0 of 1" in wrong.err) == (1, True)
    piped = fairlane("ack", "--json", input="".join(taken.out.splitlines(keepends=True)[1:]))
    assert [one["success"] for one in piped.json] == [True, True]
    assert fairlane("pop", queue).code == 1
    for arguments, input in ((("0-1",), ""), ((), "no line of a pop"), ((*named[:2], "--status", "done"), "")):
        refused = fairlane("ack", *arguments, input=input)
        assert (refused.code, "Traceback" in refused.err) == (2, False)


def test_the_result_of_a_message_is_printed(fairlane: Command, queue: str) -> None:
    from fairlane.blocking import Client

    fairlane("push", queue, "1", "--id", "one")
    pending = fairlane("message", "result", queue, "one")
    assert (pending.code, pending.out) == (75, "")
    assert "has not started the message" in pending.err
    with Client(fairlane.url) as client:
        client.ack(client.pop(queue), result={"invoice": 7})
    done = fairlane("message", "result", queue, "one", "--wait", "5")
    assert (done.code, done.out) == (0, '{"invoice":7}\n')
    assert fairlane("message", "result", queue, "one", "--json").json["result"] == {"invoice": 7}
    assert fairlane("message", "result", queue, "two").code == 2
