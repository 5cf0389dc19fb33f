"""Processes that fork, as servers with workers do, after the client was made."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairlane.blocking import Client
from tests.broker_process import BrokerProcess

BEGIN = """
import os, sys
from fairlane.blocking import Client
from fairlane.errors import InvalidRequest

url, queue = sys.argv[1:]

def forked(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
USED_BEFORE = """
client = Client(url)
client.push(queue, "parent")
forked(lambda: (client.push(queue, "child"), client.queues.all(), client.close()))
forked(lambda: client.push(queue, "another child"))
client.push(queue, "parent again")
client.close()
"""
UNUSED_BEFORE = """
client = Client(url)
forked(lambda: client.push(queue, "child"))
with client:
    client.push(queue, "parent")
    forked(lambda: client.push(queue, "another child"))
"""
CLOSED_BEFORE = """
client = Client(url)
client.close()
def child():
    try:
        client.push(queue, 1)
    except InvalidRequest as error:
        assert "this client is closed" in str(error), error
forked(child)
client = Client(url)
forked(lambda: client.close())
client.push(queue, "parent")
"""
MADE_FOR_THE_PARENT = """
client = Client(url)
with client.buffer() as buffer:
    def child():
        try:
            buffer.push(queue, 1)
        except InvalidRequest as error:
            assert "before this process was forked" in str(error), error
            client.push(queue, "child")
    forked(child)
    buffer.push(queue, "parent")
"""


@pytest.mark.parametrize(
    ("program", "pushed"),
    [
        (USED_BEFORE, ["parent", "child", "another child", "parent again"]),
        (UNUSED_BEFORE, ["child", "parent", "another child"]),
        (CLOSED_BEFORE, ["parent"]),
        (MADE_FOR_THE_PARENT, ["child", "parent"]),
    ],
    ids=["used before", "unused before", "closed before", "made for the parent"],
)
def test_a_blocking_client_works_on_both_sides_of_a_fork(
    broker: BrokerProcess, queue: str, program: str, pushed: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, broker.url, queue], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Client(broker.url) as client:
        assert [message.data for message in client.pop(queue, batch=10)] == pushed


def test_ids_of_a_forked_process_are_its_own() -> None:
    """Ids of one millisecond count up from one random number, which parent and child must not share."""
    program = """
import os
from fairlane.model.ids import uuid7
uuid7._clock_ms = lambda: 1_700_000_000_000
before = uuid7()
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
print(uuid7(), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert len(set(done.stdout.split())) == 2
