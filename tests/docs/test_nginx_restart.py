"""Brokers behind nginx restart one by one, as examples/deploy/nginx-brokers.conf says, and no client sees a 502."""

from __future__ import annotations

import contextlib
import http.client
import re
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.broker_process import BrokerProcess
from tests.docs.test_deploy import DEPLOY, free_port, needs
from tests.postgres import PostgresServer
from tests.stateful.test_stateful import database

SECONDS_MAX = 60.0
CLIENTS = [f"127.0.{number}.9" for number in range(1, 7)]
"""Addresses of clients, which nginx distributes by their first three numbers."""
QUIET = 200


class Traffic:
    """Clients of nginx that push and pop over kept connections, and count the answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopping = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.pushed: set[str] = set()
        self.popped: set[str] = set()
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(address,)) for address in CLIENTS]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def progress(self) -> None:
        """Wait for more answers."""
        before, give_up_at = self.statuses.total(), time.monotonic() + SECONDS_MAX
        while self.statuses.total() < before + QUIET and not self.failures:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)

    def _run(self, address: str) -> None:
        with contextlib.closing(self._connect(address)) as connection:
            self._use(connection, address)

    def _use(self, connection: http.client.HTTPConnection, address: str) -> None:
        number = 0
        while not self._stopping.is_set():
            id, number = f"{address}-{number}", number + 1
            item = {"queue": "orders", "partition": address, "transactionId": id, "payload": number}
            answers = [
                self._ask(connection, "POST", "/api/v1/push", {"items": [item]}),
                self._ask(connection, "GET", "/api/v1/pop/queue/orders?wait=true&timeout=500&batch=10&autoAck=true"),
            ]
            if None in answers:
                return
            self.pushed.add(id)
            self.popped.update(one["transactionId"] for one in (answers[1] or {}).get("messages", []))

    def _connect(self, address: str) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS_MAX, source_address=(address, 0))

    def _ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> Any:
        """Return an answer, or None for a failure. A connection that nginx closed between requests is opened again."""
        sent = None if body is None else msgspec.json.encode(body)
        for left in (1, 0):
            try:
                connection.request(method, path, sent, {"Host": "queue.example.com"})
                answer = connection.getresponse()
                content = answer.read()
                break
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
                connection.close()
                if not left:
                    self.failures.append(repr(error))
                    return None
        self.statuses[answer.status] += 1
        if answer.status >= 300:
            self.failures.append(f"{answer.status} {content[:200]!r}")
            return None
        return msgspec.json.decode(content) if content else {}


def workers_of(master: int) -> list[tuple[str, str]]:
    """Return the worker processes of nginx by id, and their titles."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(master)], capture_output=True, text=True, check=False
    )
    return [(pid, title) for pid, _, title in (line.strip().partition(" ") for line in listed.stdout.splitlines())]


def reload(nginx: list[str], master: int) -> None:
    """Reload nginx, and wait until its new workers accept all connections."""
    before = {pid for pid, _ in workers_of(master)}
    subprocess.run([*nginx, "-s", "reload"], check=True, timeout=SECONDS_MAX)
    give_up_at = time.monotonic() + SECONDS_MAX
    while any(pid in before and "shutting down" not in title for pid, title in workers_of(master)):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_brokers_restart_behind_nginx_without_an_error(tmp_path: Path, postgres18: PostgresServer) -> None:
    program, port = needs("nginx"), free_port()
    example = (DEPLOY / "nginx-brokers.conf").read_text()
    out, back = re.findall(r"#   (sed -i .*?) && nginx -s reload && sleep 5", example)
    site = re.sub(r" *ssl_.*\n", "", example).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    site = site.replace("/etc/nginx/brokers.conf", f"{tmp_path}/brokers.conf")
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 2; pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}; proxy_temp_path {tmp_path};\n{site}}}"
    )
    nginx = [program, "-e", f"{tmp_path}/log", "-c", str(config)]
    proxied = ["--trusted-proxies", "127.0.0.1", "--insecure-no-auth", "--allowed-hosts", "queue.example.com"]
    with database(postgres18) as store:
        brokers = [BrokerProcess(store, *proxied, data_dir=tmp_path / str(number)) for number in range(2)]
        try:
            for broker in brokers:
                broker.start()
            servers = [broker.url.removeprefix("http://") for broker in brokers]
            (tmp_path / "brokers.conf").write_text("".join(f"server {server};\n" for server in servers))
            with subprocess.Popen(nginx) as master:
                try:
                    wait_for(port)
                    with Traffic(port) as traffic:
                        for broker, server in zip(brokers, servers, strict=True):
                            traffic.progress()
                            change(out, server, tmp_path)
                            reload(nginx, master.pid)
                            assert broker.stop() == 0
                            traffic.progress()
                            broker.start()
                            change(back, server, tmp_path)
                            reload(nginx, master.pid)
                        traffic.progress()
                    assert traffic.failures == []
                    assert set(traffic.statuses) <= {200, 201, 204}, traffic.statuses
                    assert traffic.popped <= traffic.pushed
                finally:
                    master.terminate()
        finally:
            for broker in brokers:
                if broker.running:
                    broker.stop()


def change(command: str, server: str, directory: Path) -> None:
    """Run a command of the example for one of the brokers."""
    here = command.replace("127.0.0.1:6632", server).replace("/etc/nginx/brokers.conf", f"{directory}/brokers.conf")
    before = (directory / "brokers.conf").read_text()
    subprocess.run(["sh", "-c", here], check=True, timeout=SECONDS_MAX)
    assert (directory / "brokers.conf").read_text() != before


def wait_for(port: int) -> None:
    import socket

    give_up_at = time.monotonic() + SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 30).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
