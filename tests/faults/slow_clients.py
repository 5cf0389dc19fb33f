"""`make faults-full`: slowhttptest in its four modes, with and without TLS, during normal pushes."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import blocking
from tests.broker_process import BrokerProcess, broker_process
from tests.certificates import Certificates

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("slowhttptest") is None, reason="there is no slowhttptest"),
]
CONNECTIONS = 1000
SECONDS = int(os.environ.get("SLOW_SECONDS", "20"))
MODES = {
    "header": ["-H", "-i", "2", "-t", "GET", "/livez"],
    "body": ["-B", "-i", "2", "-s", "8192", "-t", "POST", "/api/v1/push"],
    "range": ["-R", "-a", "10", "-b", "3000", "-t", "HEAD", "/"],
    "read": ["-X", "-k", "3", "-n", "1", "-w", "10", "-y", "20", "-z", "8", "-t", "GET", "/openapi.json"],
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module", params=["http", "https"])
def broker(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    tls = ["--tls-cert", certificates.cert, "--tls-key", certificates.key] if request.param == "https" else []
    with broker_process(f"sqlite:///{tmp_path_factory.mktemp('store')}/queue.db", *tls) as broker:
        yield broker


class Pushes(threading.Thread):
    """A producer that pushes one message after another and measures each push."""

    def __init__(self, broker: BrokerProcess, ca_file: str) -> None:
        super().__init__(name="pushes")
        self.seconds: list[float] = []
        self._done = threading.Event()
        self._broker, self._ca_file = broker, ca_file

    def run(self) -> None:
        with blocking.Client(self._broker.url, ca_file=self._ca_file, attempts=1) as client:
            while not self._done.wait(0.01):
                began = time.monotonic()
                client.push("meanwhile", {"n": len(self.seconds)})
                self.seconds.append(time.monotonic() - began)

    def stop(self) -> None:
        self._done.set()
        self.join()


def memory_mib(broker: BrokerProcess) -> int:
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) // 1024


@pytest.mark.parametrize("mode", MODES)
def test_pushes_go_on_while_a_thousand_clients_are_slow(
    broker: BrokerProcess, certificates: Certificates, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *how, path = MODES[mode]
    pushes = Pushes(broker, certificates.ca)
    pushes.start()
    done = subprocess.run(
        [
            "slowhttptest",
            "-c",
            str(CONNECTIONS),
            "-r",
            "200",
            "-l",
            str(SECONDS),
            "-p",
            "5",
            *how,
            "-u",
            broker.url + path,
        ],
        capture_output=True,
        text=True,
        timeout=200,
    )
    peak = memory_mib(broker)
    pushes.stop()
    p99 = statistics.quantiles(pushes.seconds, n=100)[98]
    with capsys.disabled():
        figures = f"{len(pushes.seconds)} pushes, p99 {p99 * 1000:.0f} ms, {peak} MiB"
        sys.stdout.write(f"\n{broker.url.partition(':')[0]} {mode}: {figures}\n")
    assert "service available:" in done.stdout
    assert p99 < 1
