"""`fairlane serve` with an OpenTelemetry collector: spans and metrics arrive, configured by the environment."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.broker_process import FAIRLANE, broker_process

pytest.importorskip("opentelemetry.sdk")


class Collector(ThreadingHTTPServer):
    """A collector that records the requests it gets, by path."""

    def __init__(self) -> None:
        self.came = threading.Condition()
        self.bodies: dict[str, list[bytes]] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def wait_for(self, path: str, *words: bytes) -> None:
        with self.came:
            assert self.came.wait_for(lambda: all(self._has(path, word) for word in words), 60), self.bodies.keys()

    def _has(self, path: str, word: bytes) -> bool:
        return any(word in body for body in self.bodies.get(path, []))


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        with self.server.came:
            packed = self.headers.get("content-encoding") == "gzip"
            self.server.bodies.setdefault(self.path, []).append(gzip.decompress(body) if packed else body)
            self.server.came.notify_all()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_spans_and_metrics_reach_the_collector_that_the_environment_names(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "the-queue")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        body = json.dumps({"items": [{"queue": "orders", "payload": {"card": "marker-77"}}]}).encode()
        asked = urllib.request.Request(f"{broker.url}/api/v1/push", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked) as answer:
            assert answer.status == 201
        collector.wait_for("/v1/traces", b"push orders", b"the-queue", b"messaging.destination.name")
        collector.wait_for("/v1/metrics", b"fairlane_store_up", b"the-queue", b"fairlane_request_duration_seconds")
    assert not any(b"marker-77" in body for bodies in collector.bodies.values() for body in bodies)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "known are otlp, console and none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf is supported"),
        ("FAIRLANE_OTEL", "maybe", "FAIRLANE_OTEL"),
    ],
)
def test_a_setting_that_cannot_work_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv("FAIRLANE_OTEL", "on")
    monkeypatch.setenv(variable, value)
    arguments = ["serve", "--port", "0", "--store", f"sqlite:///{tmp_path}/q.db", "--data-dir", str(tmp_path / "d")]
    ran = subprocess.run([FAIRLANE, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
