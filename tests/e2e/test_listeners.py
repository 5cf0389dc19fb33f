"""Listeners of a broker process: TLS, webhooks alone, and a unix socket, with the clients that speak to them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import os
import re
import signal
import ssl
import stat
import subprocess
import time
from asyncio import to_thread
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import blocking
from fairlane.client import Client
from fairlane.errors import InvalidRequest, Unauthenticated, Unavailable
from tests.broker_process import FAIRLANE, BrokerProcess, broker_process
from tests.certificates import Certificates
from tests.e2e.conftest import StartBroker
from tests.until import until

SECRET = "a secret of thirty-two bytes....."
SPEC = """app Outside {
  queue Inbox {}
  webhook Signed { queue: Inbox  verify: github { secret_env: "LISTENERS_SECRET" } }
  webhook Open { queue: Inbox }
}
"""
APP = """
from fairlane import App

app = App()


@app.handler("Jobs")
def handle(job: dict) -> None:
    print("handled", job["n"], flush=True)
"""


class Listening:
    """A broker with TLS, a separate port for webhooks, and a Unix socket."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificates = Certificates(directory)
        self.socket = directory / "fairlane.sock"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        self.environment |= {"FAIRLANE_CA_FILE": self.certificates.ca, "NO_COLOR": "1"}

    @property
    def arguments(self) -> list[str]:
        tls = ["--tls-cert", self.certificates.cert, "--tls-key", self.certificates.key]
        hooks = ["--hooks-listen", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1"]
        return [*tls, *hooks, "--insecure-no-auth", "--socket", str(self.socket)]

    def run(self, *arguments: str, server: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | {"FAIRLANE_SERVER": server} | more
        return subprocess.run([FAIRLANE, *arguments], capture_output=True, text=True, env=environment, timeout=60)


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Listening:
    return Listening(tmp_path_factory.mktemp("listeners"))


@pytest.fixture(scope="module")
def broker(listening: Listening) -> Iterator[BrokerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LISTENERS_SECRET", SECRET)
        with broker_process(f"sqlite:///{listening.directory}/queue.db", *listening.arguments) as broker:
            spec = listening.directory / "outside.fairlane"
            spec.write_text(SPEC)
            applied = listening.run("spec", "apply", "--yes", str(spec), server=f"unix:{listening.socket}")
            assert applied.returncode == 0, applied.stderr
            yield broker
    assert not listening.socket.exists(), "it is removed at the end"


def hooks_port(broker: BrokerProcess) -> int:
    while not (found := re.search(r"webhooks only on https?://127.0.0.1:(\d+)/hook/", "".join(broker.log))):
        time.sleep(0.01)
    return int(found[1])


async def test_clients_push_and_pop_by_https(broker: BrokerProcess, listening: Listening) -> None:
    assert broker.url.startswith("https://127.0.0.1:")
    async with Client(broker.url, ca_file=listening.certificates.ca) as client:
        await client.push("tls", {"n": 1})
        [popped] = await client.pop("tls")
        assert popped.data == {"n": 1}

    def by_blocking() -> None:
        with blocking.Client(broker.url, ca_file=listening.certificates.ca) as client:
            client.push("tls", {"n": 2}, partition="b")
            assert [one.data for one in client.pop("tls", partition="b")] == [{"n": 2}]

    await to_thread(by_blocking)


async def test_a_client_that_does_not_trust_the_broker_says_why(broker: BrokerProcess, listening: Listening) -> None:
    async with Client(broker.url, ca_file=listening.certificates.other_ca, attempts=1) as client:
        with pytest.raises(Unavailable, match="certificate"):
            await client.push("tls", 1)
    async with Client(broker.url, ca_file="/nowhere/ca.pem", attempts=1) as client:
        with pytest.raises(InvalidRequest, match=r"cannot use the certificate in /nowhere/ca.pem: No such file"):
            await client.push("tls", 1)


def test_commands_and_workers_trust_the_authority_of_the_environment(
    broker: BrokerProcess, listening: Listening
) -> None:
    pushed = listening.run("push", "Jobs", '{"n": 7}', server=broker.url)
    assert pushed.returncode == 0, pushed.stderr
    stranger = listening.run("status", server=broker.url, FAIRLANE_CA_FILE="")
    assert (stranger.returncode, "certificate" in stranger.stderr) == (75, True), stranger.stderr
    (listening.directory / "handlers.py").write_text(APP)
    with subprocess.Popen(
        [FAIRLANE, "worker", "handlers:app", "--server", broker.url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=listening.directory,
        env=listening.environment,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "handled 7\n"
        worker.terminate()
        worker.stdout.read()


async def test_a_unix_socket_is_for_its_owner_and_clients_speak_to_it(
    broker: BrokerProcess, listening: Listening
) -> None:
    assert stat.S_IMODE(listening.socket.stat().st_mode) == 0o600
    url = f"unix:{listening.socket}"
    async with Client(url) as client:
        await client.push("local", 1)
        assert [one.data for one in await client.pop("local")] == [1]
    shown = await to_thread(listening.run, "queue", "list", server=url)
    assert (shown.returncode, "local" in shown.stdout) == (0, True), shown.stderr
    gone = await to_thread(listening.run, "queue", "list", server="unix:/nowhere/x.sock")
    assert (gone.returncode, "cannot reach unix:/nowhere/x.sock" in gone.stderr) == (75, True), gone.stderr


def asked(
    broker: BrokerProcess, listening: Listening, method: str, path: str, body: bytes = b"", **headers: str
) -> int:
    connection = http.client.HTTPSConnection(
        "127.0.0.1", hooks_port(broker), timeout=30, context=listening.certificates.trusting()
    )
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body or None, headers={"content-type": "application/json"} | named)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


async def test_where_webhooks_are_taken_nothing_else_is(broker: BrokerProcess, listening: Listening) -> None:
    def ask(method: str, path: str, body: bytes = b"", **headers: str) -> int:
        return asked(broker, listening, method, path, body, **headers)

    assert await to_thread(ask, "GET", "/livez", host="hooks.example.com") == 200
    for method, path in (
        *(("GET", path) for path in ("/", "/docs", "/health", "/readyz", "/metrics", "/openapi.json", "/hook")),
        *(("GET", path) for path in ("/api/v1/pop/queue/Inbox", "/api/v1/queues", "//livez", "/hook/../../metrics")),
        *(("POST", path) for path in ("/api/v1/push", "/admin/queues", "/api/v1/hooks/Signed/test")),
    ):
        assert await to_thread(ask, method, path) == 404, path
    for path in ("/hook/Signed", "/hook/default/Signed"):
        assert await to_thread(ask, "GET", path) == 405, path


async def test_webhooks_are_taken_there_with_the_address_of_their_sender(
    broker: BrokerProcess, listening: Listening
) -> None:
    body = b'{"n": 1}'
    signed = "sha256=" + hmac.digest(SECRET.encode(), body, hashlib.sha256).hex()

    def ask(path: str, **headers: str) -> int:
        return asked(broker, listening, "POST", path, body, host="hooks.example.com", **headers)

    forwarded = {"x_forwarded_for": "6.6.6.6, 203.0.113.9"}
    assert await to_thread(ask, "/hook/Signed", x_hub_signature_256=signed, **forwarded) == 202
    assert await to_thread(ask, "/hook/Signed", **forwarded) == 401
    assert await to_thread(ask, "/hook/Open") == 403, "nothing vouches for it"
    async with Client(broker.url, ca_file=listening.certificates.ca) as client:
        [message] = await client.pop("Inbox")
        assert message.data["source_ip"] == "203.0.113.9"


def test_a_broker_may_have_a_path_and_no_port_and_takes_over_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "fairlane.sock"
    with broker_process(f"sqlite:///{tmp_path}/queue.db", "--host", "none", "--socket", str(path)) as broker:
        assert broker.url == f"unix:{path}"
        broker.kill()
        assert path.exists()
        broker.start()
        with blocking.Client(broker.url) as client:
            client.push("local", 1)
        assert broker.stop() == 0
    assert not path.exists()


async def serial(url: str, context: ssl.SSLContext) -> int:
    host, port = url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    number = int(writer.get_extra_info("ssl_object").getpeercert()["serialNumber"], 16)
    writer.transport.abort()
    return number


async def test_several_processes_ask_for_client_certificates_and_read_new_ones_on_sighup(
    start: StartBroker, database_url: str, tmp_path: Path
) -> None:
    files = Certificates(tmp_path)
    tls = ["--tls-cert", files.cert, "--tls-key", files.key, "--tls-client-ca", files.ca]
    broker = await start(database_url, "--workers", "2", *tls)
    trusting = files.trusting(client=files.client)
    async with (
        Client(broker.url, ca_file=files.ca, attempts=1) as stranger,
        Client(broker.url, ca_file=files.ca, cert_file=files.client) as client,
    ):
        with pytest.raises(Unavailable):
            await stranger.push("orders", 1)
        await client.push("orders", 1)
        waiting = asyncio.create_task(client.pop("later", wait=60))
        files.spoil()
        os.kill(broker.pid, signal.SIGHUP)
        await until(lambda: sum("cannot use the certificate" in line for line in broker.log) == 2)
        before = {await serial(broker.url, trusting) for _ in range(10)}
        renewed = files.renew()
        os.kill(broker.pid, signal.SIGHUP)
        await until(lambda: sum("reloaded" in line and files.cert in line for line in broker.log) == 2)
        assert {await serial(broker.url, trusting) for _ in range(10)} == {renewed} != before
        await client.push("later", 2)
        assert [one.data for one in await waiting] == [2], "a poll that waited meanwhile goes on"


def test_metrics_have_a_listener_that_needs_no_key(tmp_path: Path) -> None:
    arguments = ("--require-auth", "--metrics-listen", "127.0.0.1:0")
    with broker_process(f"sqlite:///{tmp_path}/queue.db", *arguments) as broker:
        while not (found := re.search(r"metrics on http://127.0.0.1:(\d+)/metrics", "".join(broker.log))):
            time.sleep(0.01)

        def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request(method, path, headers={"host": "metrics.example.com"})
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer.status, body

        port = int(found[1])
        status, body = ask(port, "/metrics")
        assert (status, b"fairlane_store_up 1" in body) == (200, True)
        assert [ask(port, path)[0] for path in ("/livez", "/readyz")] == [200, 200]
        for path in ("/", "/api/v1/queues", "/admin/queues", "/health", "/metrics/prometheus"):
            assert ask(port, path)[0] == 404, path
        assert ask(port, "/metrics", "POST")[0] == 405
        with blocking.Client(broker.url, attempts=1) as client, pytest.raises(Unauthenticated):
            client.push("orders", 1)
