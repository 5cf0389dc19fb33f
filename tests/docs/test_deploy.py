"""Files of examples/deploy: each is read by the program that it is for, or run."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlane import blocking
from tests.broker_process import FAIRLANE, broker_process
from tests.certificates import Certificates

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples/deploy"
CLIENT = "127.0.0.9"
SECRET = "a secret of thirty-two bytes....."
SPEC = """app Outside {
  queue Inbox {}
  webhook Signed { queue: Inbox  verify: github { secret_env: "DEPLOY_SECRET" } }
}
"""


def needs(program: str) -> str:
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"there is no {program}")
    return found


def ran(*command: str, **more: Any) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, **more)
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


@pytest.mark.parametrize("unit", ["fairlane.service", "fairlane-worker.service"])
def test_units_are_understood_by_systemd(unit: str, tmp_path: Path) -> None:
    """Check the programs only if they are installed, because systemd also checks that they exist."""
    text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", (DEPLOY / unit).read_text(), flags=re.M)
    (tmp_path / unit).write_text(text)
    said = ran(needs("systemd-analyze"), "verify", "--recursive-errors=no", str(tmp_path / unit))
    assert unit not in said, said


def test_the_broker_has_few_rights_under_systemd() -> None:
    said = ran(
        needs("systemd-analyze"), "security", "--offline=true", "--threshold=15", str(DEPLOY / "fairlane.service")
    )
    assert "OK" in said.splitlines()[-1]


def test_the_caddyfile_is_understood_by_caddy(tmp_path: Path) -> None:
    environment = os.environ | {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    config = str(DEPLOY / "Caddyfile")
    assert "Valid configuration" in ran(
        needs("caddy"), "validate", "--adapter", "caddyfile", "--config", config, env=environment
    )


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_worker_is_confined_as_the_broker_is() -> None:
    broker, worker = ((DEPLOY / name).read_text() for name in ("fairlane.service", "fairlane-worker.service"))
    confined = broker[broker.index("NoNewPrivileges=") : broker.index("[Install]")].split()
    assert set(confined) <= set(worker.split())


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_a_broker_behind_a_proxy_is_started_with_keys(name: str) -> None:
    [command] = re.findall("fairlane serve .*", (DEPLOY / name).read_text())
    assert "--require-auth" in command


def test_nginx_passes_webhooks_with_their_senders_address_and_the_api_to_nobody_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nginx = needs("nginx")
    monkeypatch.setenv("DEPLOY_SECRET", SECRET)
    certificates, port = Certificates(tmp_path, "queue.example.com"), free_port()
    proxied = ["--hooks-listen", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1", "--insecure-no-auth"]
    with broker_process(f"sqlite:///{tmp_path}/queue.db", *proxied, "--allowed-hosts", "queue.example.com") as broker:
        (tmp_path / "outside.fairlane").write_text(SPEC)
        ran(str(FAIRLANE), "spec", "apply", "--yes", "--server", broker.url, str(tmp_path / "outside.fairlane"))
        site = (DEPLOY / "nginx.conf").read_text()
        hooks = re.search(r":(\d+)/hook/", "".join(broker.log))
        assert hooks is not None
        for example, here in (
            ("listen 443 ", f"listen 127.0.0.1:{port} "),
            ("/etc/ssl/queue.pem", certificates.cert),
            ("/etc/ssl/queue.key", certificates.key),
            ("http://127.0.0.1:6632", broker.url),
            ("127.0.0.1:6633", f"127.0.0.1:{hooks[1]}"),
        ):
            assert example in site
            site = site.replace(example, here)
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
            f"http {{ access_log off; client_body_temp_path {tmp_path}; proxy_temp_path {tmp_path};\n{site}}}"
        )
        with subprocess.Popen([nginx, "-e", "stderr", "-c", str(tmp_path / "nginx.conf")]) as server:
            try:
                check_nginx(certificates, port)
                with blocking.Client(broker.url) as client:
                    [message] = client.pop("Inbox")
                    assert message.data["source_ip"] == CLIENT, "and not what that one wrote"
            finally:
                server.terminate()


def check_nginx(certificates: Certificates, port: int) -> None:
    body = b'{"n": 1}'
    signed = "sha256=" + hmac.digest(SECRET.encode(), body, hashlib.sha256).hex()

    def ask(method: str, path: str, **headers: str) -> int:
        connection = http.client.HTTPSConnection("queue.example.com", port, timeout=30, context=certificates.trusting())
        connection._create_connection = lambda _, *more: connect(port)  # type: ignore[attr-defined]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body if method == "POST" else None, named)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    forged = {"x_forwarded_for": "6.6.6.6", "content_type": "application/json"}
    assert ask("GET", "/livez") == 200
    assert ask("POST", "/hook/Signed", x_hub_signature_256=signed, **forged) == 202
    assert ask("POST", "/hook/Signed", **forged) == 401
    for path in ("/", "/metrics", "/api/v1/queues", "/hook/../api/v1/queues", "//api/v1/queues"):
        assert ask("GET", path) == 403, path


def connect(port: int) -> Any:
    """Connect to nginx, which may still be starting."""
    import socket
    import time

    for _ in range(1000):
        try:
            return socket.create_connection(("127.0.0.1", port), 30, (CLIENT, 0))
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError("nginx did not begin")


def test_the_list_of_what_a_release_consists_of_has_every_package_of_the_lock(tmp_path: Path) -> None:
    """The list is made as in `make sbom`."""
    made = tmp_path / "sbom.json"
    [rule] = re.findall(r"cyclonedx-py (requirements .*\n.*)", (ROOT / "Makefile").read_text())
    arguments = rule.replace("\\\n", " ").replace("build/sbom.json", str(made))
    ran(str(Path(sys.executable).with_name("cyclonedx-py")), *shlex.split(arguments), cwd=ROOT)
    listed = {one["name"]: one for one in msgspec.json.decode(made.read_bytes())["components"]}
    locked = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements/server.txt").read_text(), re.M)
    assert {name: listed[name]["version"] for name, _ in locked} == dict(locked)
    assert all(one["externalReferences"][0]["hashes"] for one in listed.values())
