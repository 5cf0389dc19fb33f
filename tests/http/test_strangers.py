"""Attacks by one client: pushes of others are answered soon, memory stays small, and nothing is left."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.broker_process import BrokerProcess, broker_process
from tests.metrics import samples

MIB = 1024 * 1024
BUDGET = 64 * MIB
ANSWER_SECONDS = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    store = tmp_path_factory.mktemp("store") / "queue.db"
    with broker_process(f"sqlite:///{store}", "--inflight-bytes-max", str(BUDGET)) as broker:
        yield broker


def host_and_port(broker: BrokerProcess) -> tuple[str, int]:
    url = urlsplit(broker.url)
    assert url.hostname is not None
    assert url.port is not None
    return url.hostname, url.port


def ask(broker: BrokerProcess, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*host_and_port(broker), timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, body=body, headers={"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Bystander(threading.Thread):
    """A client that pushes small messages and records the time and answer of each.

    `busy` is the CPU time of the broker in these seconds, because time given to other processes is not the attacker's
    doing.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(name="bystander")
        self.seconds: list[float] = []
        self.busy: list[float] = []
        self.statuses: set[int] = set()
        self._broker = broker
        self._connection = http.client.HTTPConnection(*host_and_port(broker), timeout=ANSWER_SECONDS)
        self._done = threading.Event()

    def run(self) -> None:
        body = msgspec.json.encode({"items": [{"queue": "bystander", "payload": 1}]})
        while not self._done.is_set() or len(self.seconds) < 20:
            began, worked = time.monotonic(), cpu_seconds(self._broker)
            self._connection.request("POST", "/api/v1/push", body=body, headers={"content-type": "application/json"})
            answer = self._connection.getresponse()
            answer.read()
            self.seconds.append(time.monotonic() - began)
            self.busy.append(min(self.seconds[-1], cpu_seconds(self._broker) - worked))
            self.statuses.add(answer.status)
            self._done.wait(0.005)
        self._connection.close()

    def finish(self) -> None:
        self._done.set()
        self.join()


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]


def cpu_seconds(broker: BrokerProcess) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(broker: BrokerProcess, what: str) -> float:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(re.findall(rf"{what}:\s+(\d+) kB", status)[0]) / 1024


@contextlib.contextmanager
def unharmed(broker: BrokerProcess, *, mib_max: float) -> Iterator[None]:
    """Check that others can push meanwhile, that memory grows by at most this much, and that no connection is left."""
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # reset the peak to the current value
    before = memory_mib(broker, "VmRSS")
    bystander = Bystander(broker)
    bystander.start()
    try:
        yield
    finally:
        bystander.finish()
    assert bystander.statuses == {201}
    assert p99(bystander.busy) < 1.0, sorted(bystander.busy)[-5:]
    assert p99(bystander.seconds) < 10.0, sorted(bystander.seconds)[-5:]
    grown = memory_mib(broker, "VmHWM") - before
    assert grown < mib_max, f"it grew by {grown:.0f} MiB"
    give_up_at = time.monotonic() + ANSWER_SECONDS
    while connections(broker) > 1:  # the connection of this request itself
        assert time.monotonic() < give_up_at, "connections are left"
        time.sleep(0.02)


def connections(broker: BrokerProcess) -> int:
    _, text = ask(broker, "GET", "/metrics")
    return int(next(value for (name, _), value in samples(text).items() if name == "fairlane_http_connections"))


class Stranger:
    """A connection that sends arbitrary bytes."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection(host_and_port(broker), timeout=ANSWER_SECONDS)

    def say(self, text: str, body: bytes = b"") -> None:
        self.socket.sendall(text.replace("\n", "\r\n").encode() + body)

    def try_to_say(self, text: str, body: bytes) -> None:
        """Send bytes, and ignore that the server may close the connection meanwhile."""
        with contextlib.suppress(ConnectionError):
            self.say(text, body)

    def status(self) -> int:
        """Return the status of the first answer."""
        return int(self.socket.recv(64).split()[1])

    def hang_up(self) -> None:
        """Disconnect at once, without reading what is left."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@contextlib.contextmanager
def strangers(broker: BrokerProcess, count: int) -> Iterator[list[Stranger]]:
    with contextlib.ExitStack() as stack:
        found = [Stranger(broker) for _ in range(count)]
        for stranger in found:
            stack.callback(stranger.hang_up)
        yield found


POST = "POST /api/v1/push HTTP/1.1\nhost: localhost\ncontent-type: application/json\n"
POLL = "GET /api/v1/pop/queue/nothing?wait=true&timeout=3600000 HTTP/1.1\nhost: localhost\n"


def test_a_stranger_that_hangs_up_in_its_body_again_and_again(broker: BrokerProcess) -> None:
    with unharmed(broker, mib_max=80):
        for _ in range(30):
            with strangers(broker, 1) as [stranger]:
                stranger.say(f"{POST}content-length: {8 * MIB}\n\n", b"x" * (8 * MIB - 1))


def test_a_stranger_that_polls_with_a_body_again_and_again(broker: BrokerProcess) -> None:
    with unharmed(broker, mib_max=80):
        for _ in range(15):
            with strangers(broker, 1) as [stranger], contextlib.suppress(ConnectionError):
                stranger.try_to_say(f"{POLL}content-length: {16 * MIB}\n\n", b"x" * 16 * MIB)
                assert stranger.status() == 400


FILL = [2**power for power in range(24, 4, -1) for _ in range(4)]
"""Body lengths that use the whole budget, to the last bytes."""


def test_strangers_that_keep_the_end_of_their_bodies_to_themselves(broker: BrokerProcess) -> None:
    with unharmed(broker, mib_max=4 * BUDGET / MIB), strangers(broker, len(FILL)) as found:
        for stranger, size in zip(found, FILL, strict=True):
            stranger.try_to_say(f"{POST}content-length: {size}\n\n", b"x" * (size - 1))


def test_strangers_that_send_behind_a_poll(broker: BrokerProcess) -> None:
    with unharmed(broker, mib_max=80), strangers(broker, len(FILL)) as found:
        for stranger, size in zip(found, FILL, strict=True):
            stranger.try_to_say(f"{POLL}\n{POST}content-length: {size}\n\n", b"x" * size)


@pytest.mark.parametrize(
    ("beginning", "part"),
    [(b"a000\r\n" + b"x" * 0xA000 + b"\r\n0\r\nx-bomb: ", b"x" * MIB), (b"", b"2\r\nxx\r\n" * 100_000)],
    ids=["trailers that never end", "chunks of two bytes"],
)
def test_a_stranger_whose_body_is_mostly_what_frames_it(broker: BrokerProcess, beginning: bytes, part: bytes) -> None:
    with unharmed(broker, mib_max=80):
        for _ in range(3):
            with strangers(broker, 1) as [stranger], contextlib.suppress(ConnectionError):
                stranger.say(f"{POST}transfer-encoding: chunked\n\n", beginning)
                for _ in range(64):
                    stranger.say("", part)
                    with contextlib.suppress(BlockingIOError):
                        assert stranger.socket.recv(64, socket.MSG_DONTWAIT).startswith(b"HTTP/1.1 400 ")
                        break
                else:
                    pytest.fail("it goes on reading")


def test_a_stranger_whose_payloads_are_as_deep_as_allowed(broker: BrokerProcess) -> None:
    payload = b"[%b]" % b",".join([b"[" * 126 + b"]" * 126] * (3_900_000 // 253))
    body = b'{"items":[%b]}' % b",".join([b'{"queue":"deep","payload":%b}' % payload] * 3)
    with unharmed(broker, mib_max=4 * BUDGET / MIB):
        status, said = ask(broker, "POST", "/api/v1/push", body)
        assert status == 201, said[:300]


def test_strangers_that_do_not_read_what_they_popped(broker: BrokerProcess) -> None:
    payload = b'"%b"' % (b"x" * (4 * MIB - 100))
    for _ in range(8):
        body = b'{"items":[{"queue":"large","payload":%b}]}' % payload
        assert ask(broker, "POST", "/api/v1/push", body)[0] == 201
    with unharmed(broker, mib_max=4 * BUDGET / MIB), strangers(broker, 30) as found:
        for number, stranger in enumerate(found):
            path = f"/api/v1/pop/queue/large?batch=100&consumerGroup=g{number}&wait=true&timeout=30000"
            stranger.say(f"GET {path} HTTP/1.1\nhost: localhost\n\n")
        assert {stranger.status() for stranger in found} <= {200, 429}


def test_strangers_that_do_not_read_what_is_always_the_same(broker: BrokerProcess) -> None:
    with unharmed(broker, mib_max=80), strangers(broker, 400) as found:
        for stranger in found:
            stranger.say("GET /openapi.json HTTP/1.1\nhost: localhost\n\n" * 20)
        assert [stranger.status() for stranger in found[:50]] == [200] * 50
