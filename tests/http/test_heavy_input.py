"""Every route answers large input soon and with a bounded amount of memory."""

from __future__ import annotations

import http.client
import re
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from fairlane.http.route_table import ROUTES
from tests.broker_process import broker_process

RESIDENT_MIB_MAX = 512
ANSWER_SECONDS_MAX = 60.0
MANY = 100_000


def bodies() -> dict[str, bytes]:
    return {
        "a string of 10 MB": b'{"queue":"%b"}' % (b"x" * 10_000_000),
        "a million names": b"{%b}" % b",".join(b'"%d":1' % number for number in range(1_000_000)),
        "many items": b'{"items":[%b]}' % b",".join([b'{"queue":"q","payload":1}'] * MANY),
        "many acks": b'{"acknowledgments":[%b]}' % b",".join([b'{"transactionId":"x","partitionId":"0-1"}'] * MANY),
        "many operations": b'{"operations":[%b]}' % b",".join([b'{"type":"push","queue":"q","payload":1}'] * MANY),
        "a name of 1 MB": b'{"items":[{"queue":"%b","payload":1}],"name":"%b"}' % (b"x" * 2**20, b"x" * 2**20),
        "more than is allowed": b'{"items":"%b"}' % (b"x" * 33 * 2**20),
    }


def peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


@pytest.mark.timeout(600)
def test_a_heavy_body_is_answered_by_every_route_and_does_not_fill_the_memory(tmp_path: Path) -> None:
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        host, heavy = urlsplit(broker.url).netloc, bodies()
        for route in ROUTES:
            if route.method not in ("POST", "PUT"):
                continue
            for what, body in heavy.items():
                connection = http.client.HTTPConnection(host, timeout=ANSWER_SECONDS_MAX)
                try:
                    connection.request(route.method, re.sub(r"\{\w+\}", "q", route.path), body=body)
                    answer = connection.getresponse()
                    said = answer.read()
                except (BrokenPipeError, ConnectionResetError):
                    assert what == "more than is allowed", (route.path, what)  # it hangs up on who goes on sending
                    continue
                finally:
                    connection.close()
                assert answer.status < 500, (route.path, what, said[:300])
                if answer.status >= 400:
                    assert msgspec.json.decode(said)["error"], (route.path, what)
        assert peak_mib(broker.pid) < RESIDENT_MIB_MAX
