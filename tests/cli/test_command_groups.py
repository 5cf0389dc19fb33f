"""Commands of the groups `queue`, `group`, `dlq` and others, and the behaviour that all commands share."""

from __future__ import annotations

import time
import urllib.request

import pytest

from fairlane.blocking import Client
from fairlane.model.outcome import AckItem
from tests.broker_process import BrokerProcess
from tests.cli.conftest import Command


def dead_letter(fairlane: Command, queue: str, count: int) -> None:
    """Make dead letters by nacking messages of a queue without retries."""
    with Client(fairlane.url) as client:
        client.queues.configure(queue, retry_limit=0)
        for n in range(count):
            client.push(queue, {"n": n})
            client.nack(client.pop(queue), error=f"broken {n}")


def test_a_dead_letter_is_shown_with_the_place_where_its_handler_failed(fairlane: Command, queue: str) -> None:
    frames = 'Traceback (most recent call last):\n  File "shop.py", line 12, in bill\n    charge(\x1b[2J)\nValueError'
    with Client(fairlane.url) as client:
        client.queues.configure(queue, retry_limit=1)
        client.push(queue, 1)
        for traceback in (None, frames):
            [message] = client.pop(queue)
            item = AckItem(transaction_id=message.transaction_id, partition=message.partition_id, lease=message.lease)
            item.status, item.error, item.traceback = "failed", "no such card", traceback
            client.ack_many([item])
        [letter] = client.dead_letters.page(queue)
    shown = fairlane("dlq", "show", queue, letter.id).out
    assert [line.split(maxsplit=2)[2] for line in shown.splitlines() if line.startswith("failed in")] == [
        'File "shop.py", line 12, in bill'
    ]
    assert "charge" not in shown
    shown = fairlane("dlq", "show", queue, letter.id, "--trace").out
    first, last = shown.split("\n\n")[1:]
    assert first.startswith("Attempt 1, ")
    assert first.splitlines()[1:] == ["The consumer sent no traceback."]
    assert last.startswith("Attempt 2, ")
    assert last.splitlines()[1:] == frames.replace("\x1b", "\\u001b").splitlines()
    found = fairlane("dlq", "show", queue, letter.id, "--json").json["errors"]
    assert [one["traceback"] for one in found] == [None, frames]


def test_a_queue_is_created_shown_and_deleted(fairlane: Command, queue: str) -> None:
    created = fairlane("queue", "create", queue, "--max-size", "7", "--set", "retry-jitter=true", "--json")
    assert created.code == 0
    assert (created.json["options"]["max_size"], created.json["options"]["retry_jitter"]) == (7, True)
    fairlane("push", queue, "1", "--partition", "lane")
    [listed] = [one for one in fairlane("queue", "list", "--json").json if one["name"] == queue]
    assert listed["messages"]["pending"] == 1
    shown = fairlane("queue", "show", queue)
    assert shown.code == 0
    assert [line.split()[:2] for line in shown.out.splitlines() if line.startswith("lane")] == [["lane", "1"]]
    deleted = fairlane("queue", "delete", queue, "--yes")
    assert (deleted.code, deleted.err) == (0, f"Deleted queue {queue}.\n")
    assert queue not in fairlane("queue", "list").out


def test_creating_a_queue_that_is_there_needs_saying_so(fairlane: Command, queue: str) -> None:
    assert fairlane("queue", "create", queue).code == 0
    refused = fairlane("queue", "create", queue)
    assert (refused.code, "--replace" in refused.err) == (2, True)
    assert fairlane("queue", "create", queue, "--replace").code == 0


def test_an_option_that_is_none_is_explained(fairlane: Command, queue: str) -> None:
    unknown = fairlane("queue", "create", queue, "--set", "speed=9")
    assert (unknown.code, "is not a queue option; write one of" in unknown.err) == (2, True)
    similar = fairlane("queue", "create", queue, "--set", "lease_time=9")
    assert similar.err == "fairlane: 'lease_time' is not a queue option; did you mean lease_seconds?\n"
    assert "write priority=VALUE" in fairlane("queue", "create", queue, "--set", "priority").err
    wrong = fairlane("queue", "create", queue, "--set", "priority=high")
    assert (wrong.code, "Expected `int`" in wrong.err) == (2, True)


def test_deleting_asks_first_and_without_a_terminal_does_nothing(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "1")
    refused = fairlane("queue", "delete", queue)
    assert (refused.code, "Confirm with --yes" in refused.err) == (2, True)
    assert fairlane("pop", queue).code == 0


def test_a_misspelled_queue_is_an_error_and_the_similar_one_is_named(fairlane: Command, queue: str) -> None:
    fairlane("queue", "create", queue)
    missing = fairlane("message", "list", f"{queue}x")
    assert (missing.code, missing.err) == (2, f"fairlane: queue '{queue}x' does not exist; did you mean '{queue}'?\n")


def test_a_group_that_is_not_there_is_not_deleted(fairlane: Command, queue: str) -> None:
    fairlane("queue", "create", queue)
    missing = fairlane("group", "delete", queue, "nobody", "--yes")
    assert (missing.code, "has no group 'nobody'" in missing.err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("queue", "show"),
        ("queue", "clear"),
        ("queue", "delete"),
        ("queue", "leases"),
        ("tail",),
        ("group", "list"),
        ("dlq", "list"),
        ("dlq", "errors"),
        ("dlq", "replay", "--all"),
    ],
)
def test_a_queue_that_is_not_there_is_an_error(fairlane: Command, arguments: tuple[str, ...]) -> None:
    missing = fairlane(*arguments, "nobody's")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith("fairlane: ")


def test_some_options_of_a_queue_are_set_and_the_others_stay(fairlane: Command, queue: str) -> None:
    fairlane("queue", "create", queue, "--lease-seconds", "33", "--max-size", "7")
    done = fairlane("queue", "set", queue, "max_size=9", "retry-limit=2", "--json")
    options = done.json["options"]
    assert (options["max_size"], options["retry_limit"], options["lease_seconds"]) == (9, 2, 33)
    fairlane("push", f"{queue}-pushed", "1", "--partition", "a")
    fairlane("queue", "set", f"{queue}-pushed", "max_size=9")
    made = fairlane("queue", "show", f"{queue}-pushed", "--json").json["partitions"]
    assert [partition["name"] for partition in made] == ["a"], "it makes no partition"
    for name, shown, seconds in (("leaseTime", "lease_seconds", 30), ("leaseSeconds", "lease_seconds", 31)):
        done = fairlane("queue", "set", queue, f"{name}={seconds}", "--json")
        assert done.json["options"][shown] == seconds, "as the dashboard and the API call it"
    twice = fairlane("queue", "set", queue, "leaseTime=1", "lease_seconds=2")
    assert (twice.code, "leaseTime=1" in twice.err or "lease_seconds" in twice.err) == (2, True)
    wrong = fairlane("queue", "set", queue, "max_sise=9")
    assert (wrong.code, "max_sise" in wrong.err, "max_size" in wrong.err) == (2, True, True)
    missing = fairlane("queue", "set", "nobody's", "max_size=9")
    assert (missing.code, missing.err) == (2, 'fairlane: there is no queue "nobody\'s"\n')


def test_a_queue_is_cleared_and_stays(fairlane: Command, queue: str) -> None:
    for partition in ("a", "a", "b"):
        fairlane("push", queue, "1", "--partition", partition)
    assert fairlane("queue", "clear", queue).code == 2, "nobody to ask"
    assert fairlane("queue", "clear", queue, "--partition", "a", "--yes", "--json").json["cleared"] == 2
    done = fairlane("queue", "clear", queue, "--yes")
    assert (done.code, done.err) == (0, f"1 message deleted from queue {queue}.\n")
    assert fairlane("queue", "show", queue, "--json").json["totals"]["pending"] == 0


def test_the_server_may_be_named_before_the_verb(fairlane: Command, cli_broker: BrokerProcess, queue: str) -> None:
    elsewhere = Command("http://127.0.0.1:1")
    assert elsewhere("--server", cli_broker.url, "push", queue, "1").code == 0
    assert elsewhere("push", queue, "1", "--server", cli_broker.url).code == 0
    assert elsewhere("queue", "list").code == 75


def test_a_group_is_listed_sent_elsewhere_and_deleted(fairlane: Command, queue: str) -> None:
    for n in range(3):
        fairlane("push", queue, str(n))
    assert len(fairlane("pop", queue, "--group", "g", "--batch", "9", "--json").lines) == 3
    assert [group["name"] for group in fairlane("group", "list", queue, "--json").json] == ["g"]
    assert fairlane("pop", queue, "--group", "g").code == 1
    for to, said in (
        ("beginning", "3 messages"),
        ("end", "0 messages"),
        ("1970-01-01", "3 messages"),
        ("2", "1 message"),
    ):
        looked = fairlane("group", "seek", queue, "g", "--to", to, "--preview")
        assert (looked.code, looked.err) == (0, f"{said} would be delivered again, 0 would be skipped.\n")
    sought = fairlane("group", "seek", queue, "g", "--to", "beginning")
    assert (sought.code, sought.err) == (0, f"Moved group g in 1 partition of {queue}.\n")
    assert fairlane("pop", queue, "--group", "g").out.endswith("  0\n")
    assert (
        fairlane("group", "seek", queue, "g", "--to", "2", "--partition", "Default", "--json").json["partitions"] == 1
    )
    assert fairlane("pop", queue, "--group", "g").out.endswith("  2\n")
    assert fairlane("group", "seek", queue, "g", "--to", "1970-01-01").code == 0
    assert fairlane("pop", queue, "--group", "g").out.endswith("  0\n")
    assert fairlane("group", "seek", queue, "g", "--to", "end").code == 0
    assert fairlane("pop", queue, "--group", "g").code == 1
    assert fairlane("group", "delete", queue, "g", "--yes").code == 0
    assert fairlane("group", "list", queue).err == "There are no groups.\n"


def test_a_seek_to_nowhere_is_explained(fairlane: Command, queue: str) -> None:
    refused = fairlane("group", "seek", queue, "g", "--to", "yesterday")
    assert (refused.code, "beginning, end, a time" in refused.err) == (2, True)


def test_dead_letters_are_listed_replayed_and_purged(fairlane: Command, queue: str) -> None:
    dead_letter(fairlane, queue, 3)
    letters = fairlane("dlq", "list", queue, "--json").json
    assert [letter["data"]["n"] for letter in letters] == [2, 1, 0]
    table = fairlane("dlq", "list", queue).out
    assert all(text in table for text in ("broken 0", "broken 2", '{"n":1}', letters[0]["id"]))
    counted = fairlane("dlq", "errors", queue, "--json").json
    assert sorted((one["error"], one["count"]) for one in counted) == [
        ("broken 0", 1),
        ("broken 1", 1),
        ("broken 2", 1),
    ]
    assert "broken 1" in fairlane("dlq", "errors", queue, "--each").out
    merged = fairlane("dlq", "errors", queue).out
    assert "broken …" in merged
    assert "broken 1" not in merged, "texts that differ in a number count as one"
    wrong = fairlane("dlq", "replay", queue, letters[0]["id"], "--payload", "{n: 2}")
    assert (wrong.code, "--payload is not JSON" in wrong.err) == (2, True)
    replayed = fairlane("dlq", "replay", queue, letters[0]["id"], "--payload", '{"n": 2}')
    assert (replayed.code, replayed.err) == (0, f"Replayed 1 dead letter of {queue}.\n")
    assert fairlane("pop", queue, "--json").json["data"] == {"n": 2}
    assert fairlane("dlq", "purge", queue, letters[1]["id"], "--yes", "--json").json["purged"] == 1
    assert len(fairlane("dlq", "replay", queue, "--all", "--json").json) == 1
    assert fairlane("dlq", "purge", queue, "--all", "--yes").code == 0
    assert fairlane("dlq", "list", queue).err == f"Queue {queue} has no dead letters.\n"


def test_all_dead_letters_must_be_meant(fairlane: Command, queue: str) -> None:
    for verb in ("replay", "purge"):
        refused = fairlane("dlq", verb, queue)
        assert (refused.code, "or use --all" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "push",
        "pop",
        "tail",
        "ack",
        *(f"queue {verb}" for verb in ("list", "show", "create", "set", "clear", "delete")),
        *(f"group {verb}" for verb in ("list", "seek", "delete")),
        *(f"dlq {verb}" for verb in ("list", "replay", "purge")),
        *(f"retention {verb}" for verb in ("run", "history")),
        *(f"operation {verb}" for verb in ("list", "show", "retry", "discard")),
    ],
)
def test_every_command_explains_itself(fairlane: Command, command: str) -> None:
    shown = fairlane(*command.split(), "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"Usage: fairlane {command}")
    assert command == "serve" or "FAIRLANE_SERVER" in shown.out


def test_a_command_alone_shows_what_there_is(fairlane: Command) -> None:
    for arguments in ((), ("queue",), ("group",), ("dlq",), ("operation",)):
        shown = fairlane(*arguments)
        assert "Commands:" in shown.out + shown.err
        assert "Traceback" not in shown.err


def test_a_queue_is_paused_explained_and_resumed(fairlane: Command, queue: str) -> None:
    fairlane("push", queue, "1", "--partition", "lane")
    fairlane("pop", queue)
    assert fairlane("queue", "pause", queue, "--partition", "lane").err == f"Partition lane of {queue} is paused.\n"
    assert "has been paused since" in fairlane("queue", "explain", queue, "lane").err
    assert fairlane("queue", "explain", queue, "lane", "--json").json["reason"] == "paused"
    assert "is resumed" in fairlane("queue", "resume", queue, "--partition", "lane").err
    assert "was not paused" in fairlane("queue", "resume", queue, "--partition", "lane").err
    assert fairlane("queue", "resume", queue, "--lanes").err == f"0 lanes of {queue} resumed.\n"


def test_retention_is_run_and_told_of(fairlane: Command, queue: str) -> None:
    fairlane("queue", "create", queue, "--set", "retention-enabled=true", "--set", "retention-seconds=1")
    fairlane("push", queue, "1")
    time.sleep(1.1)
    ran = fairlane("retention", "run", "--json")
    assert ran.code == 0
    # The broker may have been first.
    assert [one for one in ran.json if one["queue"] == queue] in (
        [],
        [{"queue": queue, "rule": "retention", "messages": 1, "unread": 1}],
    )
    [line] = [line for line in fairlane("retention", "history", queue).out.splitlines() if queue in line]
    assert line.split()[-3:] == ["retention", "1", "1"]


def test_leases_are_listed(fairlane: Command, queue: str) -> None:
    fairlane("queue", "create", queue)
    assert fairlane("queue", "leases", queue).err == "There are no leases.\n"
    with Client(fairlane.url) as client:
        client.push(queue, 1, partition="lane")
        [held] = client.pop(queue)
        [lease] = client.queues.leases(queue, ending_within=400)
        assert (lease.lease_id, lease.messages) == (held.lease, 1)
        assert client.queues.utilisation(queue).groups[0].partitions_leased == 1
    [line] = [line for line in fairlane("queue", "leases").out.splitlines() if queue in line]
    assert line.split()[1:4:2] == ["lane", "0/1"]


def test_a_schedule_is_set_listed_paused_run_and_deleted(fairlane: Command, queue: str) -> None:
    made = fairlane("schedule", "set", queue, queue, '{"n":1}', "--cron", "0 9 * * MON", "--timezone", "Europe/Rome")
    assert (made.code, made.err.startswith(f"Schedule {queue} runs next at ")) == (0, True), made.err
    [listed] = [one for one in fairlane("schedule", "list", "--json").json if one["name"] == queue]
    assert (listed["cron"], listed["timezone"], len(listed["nextRuns"])) == ("0 9 * * MON", "Europe/Rome", 5)
    assert "0 9 * * MON (Europe/Rome)" in fairlane("schedule", "show", queue).out
    assert fairlane("schedule", "pause", queue).code == 0
    assert "paused" in fairlane("schedule", "list").out
    assert fairlane("schedule", "resume", queue).code == 0
    assert fairlane("schedule", "run", queue).code == 0
    assert fairlane("pop", queue, "--json").json["data"] == {"n": 1}
    assert fairlane("schedule", "delete", queue, "--yes").err == f"Deleted schedule {queue}.\n"
    refused = fairlane("schedule", "set", queue, queue, "--every", "soon")
    assert (refused.code, "is not a duration" in refused.err) == (2, True)


def _pause_pushes(fairlane: Command, paused: bool) -> None:
    body = b'{"pushes": true}' if paused else b'{"pushes": false}'
    path = f"{fairlane.url}/api/v1/pauses"
    urllib.request.urlopen(urllib.request.Request(path, body, {"content-type": "application/json"})).close()


def test_operations_are_listed_shown_tried_again_and_discarded(fairlane: Command, queue: str) -> None:
    """Make pushes fail when the journal is drained, by changing the ordering of their queue."""
    with Client(fairlane.url) as client:
        _pause_pushes(fairlane, True)
        try:
            ids = [str(client.push(queue, n, partition=f"lane{n}").operation_id) for n in range(3)]
            pending = fairlane("operation", "list", "--status", "pending", "--queue", queue, "--json").json
            assert [(one["id"], one["status"], one["durability"]) for one in pending] == [
                (id, "pending", "journal") for id in ids
            ]
            client.queues.configure(queue, ordering="fifo")
        finally:
            _pause_pushes(fairlane, False)
        give_up_at = time.monotonic() + 20
        while len(client.operations.all(status="failed", queue=queue)) < 3 and time.monotonic() < give_up_at:
            time.sleep(0.1)
        listed = fairlane("operation", "list", "--status", "failed", "--queue", queue)
        assert [line.split()[0] for line in listed.out.splitlines() if "fifo" in line] == ids
        client.queues.configure(queue, ordering="per_key")
        refused = fairlane("operation", "discard", ids[0])
        assert (refused.code, "Confirm with --yes" in refused.err) == (2, True)
        assert fairlane("operation", "discard", ids[0], "--yes").err == "1 operation is discarded.\n"
        assert fairlane("operation", "retry", "--queue", queue, "--json").json == {"done": ids[1:], "refused": []}
        assert sorted(message.data for _ in range(2) for message in client.pop(queue, wait=10)) == [1, 2]
        give_up_at = time.monotonic() + 20
        while client.operations.get(ids[1]).status != "completed" and time.monotonic() < give_up_at:
            time.sleep(0.1)
    shown = fairlane("operation", "show", ids[1])
    assert (shown.code, "completed" in shown.out, "queued" in shown.out) == (0, True, True)
    assert fairlane("operation", "show", ids[1], "--json").json["result"]["items"][0]["status"] == "queued"
    late = fairlane("operation", "retry", ids[1])
    assert (late.code, "only a failed operation" in late.err) == (2, True)
    assert "or use --queue or --all" in fairlane("operation", "retry").err
    assert "'--status': 'odd' is not one of" in fairlane("operation", "list", "--status", "odd").err
    assert "not the id of an operation" in fairlane("operation", "show", "nonsense").err
