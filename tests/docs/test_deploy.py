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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fairlane import blocking
from fairlane.config import load_settings
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
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, **more)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("unit", ["fairlane.service", "fairlane-worker.service"])
def test_units_are_understood_by_systemd(unit: str, tmp_path: Path) -> None:
    """Of programs that are there: whether they are is the machine's affair."""
    text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", (DEPLOY / unit).read_text(), flags=re.M)
    (tmp_path / unit).write_text(text)
    said = ran(needs("systemd-analyze"), "verify", "--recursive-errors=no", str(tmp_path / unit))
    assert unit not in said, said


def test_the_broker_has_few_rights_under_systemd() -> None:
    said = ran(
        needs("systemd-analyze"), "security", "--offline=true", "--threshold=15", str(DEPLOY / "fairlane.service")
    )
    assert "OK" in said.splitlines()[-1]


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted(DEPLOY.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def test_manifests_name_what_they_have() -> None:
    """Labels, ports, volumes and secrets that something refers to are there, under that name."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in manifests()}
    assert {kind for kind, _ in found} == {"Deployment", "StatefulSet", "Service", "NetworkPolicy"}
    broker = found["StatefulSet", "fairlane"]["spec"]
    pod, [container] = broker["template"]["spec"], broker["template"]["spec"]["containers"]
    labels = broker["template"]["metadata"]["labels"]
    policy, service = found["NetworkPolicy", "fairlane"]["spec"], found["Service", "fairlane"]["spec"]
    assert labels == broker["selector"]["matchLabels"] == service["selector"] == policy["podSelector"]["matchLabels"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert {one["targetPort"]: one["port"] for one in service["ports"]} == ports
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports)
    volumes = {one["name"] for one in (*pod["volumes"], *(one["metadata"] for one in broker["volumeClaimTemplates"]))}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/livez", "port": "hooks", "scheme": "HTTPS"}
    flags = dict(one.removeprefix("--").split("=", 1) for one in container["args"][1:])
    settings = load_settings({name.replace("-", "_"): value for name, value in flags.items()})
    assert settings.hooks_listen == f"{settings.host}:{ports['hooks']}"
    assert settings.port == ports["api"]


def test_pods_of_brokers_have_few_rights() -> None:
    [broker] = [one["spec"]["template"]["spec"] for one in manifests() if one["kind"] == "StatefulSet"]
    assert broker["securityContext"]["runAsNonRoot"] is True
    assert broker["automountServiceAccountToken"] is False
    assert broker["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


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


def test_nginx_passes_webhooks_with_their_senders_address_and_the_api_to_nobody_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nginx = needs("nginx")
    monkeypatch.setenv("DEPLOY_SECRET", SECRET)
    certificates, port = Certificates(tmp_path, "queue.example.com"), free_port()
    proxied = ["--hooks-listen", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1"]
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
    """To nginx, which may have to begin yet."""
    import socket
    import time

    for _ in range(1000):
        try:
            return socket.create_connection(("127.0.0.1", port), 30, (CLIENT, 0))
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError("nginx did not begin")


def test_the_steps_of_the_dockerfile_make_a_broker_in_a_clean_directory(tmp_path: Path) -> None:
    """Its COPY and RUN lines as a script: / is a directory, and the build context is this tree. Packages come as they
    are installed here instead of over the network; the lock has been checked when those were."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert [what for what, _ in steps if what == "FROM"] == ["FROM", "FROM"]
    assert ["USER", "65532:65532"] in steps
    source, home = tmp_path / "src", tmp_path / "opt/fairlane"
    source.mkdir()

    def here(words: str) -> list[str]:
        return [
            word.replace("/opt/fairlane", str(home)).replace("/data", str(tmp_path / "data"))
            for word in shlex.split(words)
        ]

    for what, rest in steps:
        if what == "COPY" and "--from" not in rest:
            *names, target = rest.split()
            for name in names:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, source / (Path(name).name if target == "./" else target))
        elif what == "RUN" and "--require-hashes" in rest:
            assert (source / "server.txt").read_bytes() == (ROOT / "requirements/server.txt").read_bytes()
            packages = next((home / "lib").glob("python3*/site-packages"))
            others = Path(sys.executable).parents[1] / f"lib/{packages.parent.name}/site-packages"
            (packages / "installed.pth").write_text(f"{others}\n")
        elif what == "RUN":
            command = here(rest)
            if command[0] == "python":
                command = [sys.executable, *command[1:]]
            if command[0] == "install":
                command = [word for word in command if word not in ("--owner", "--group", "65532")]
            ran(*command, cwd=source)
    version = ran(str(home / "bin/fairlane"), "--version", cwd=tmp_path)
    assert version.startswith("fairlane ")
    [entry] = [msgspec.json.decode(rest) for what, rest in steps if what == "ENTRYPOINT"]
    assert here(entry[0]) == [str(home / "bin/fairlane")]
    [command] = [msgspec.json.decode(rest) for what, rest in steps if what == "CMD"]
    store = f"sqlite:///{tmp_path}/data/fairlane.db"
    refused = subprocess.run(
        [str(home / "bin/fairlane"), *command, "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"FAIRLANE_STORE": store, "FAIRLANE_DATA_DIR": str(tmp_path / "data")},
    )
    assert refused.returncode == 2, "without a key it is for nobody outside"
    assert "fairlane key create" in refused.stderr


def test_the_list_of_what_a_release_consists_of_has_every_package_of_the_lock(tmp_path: Path) -> None:
    """As `make sbom` makes it."""
    made = tmp_path / "sbom.json"
    [rule] = re.findall(r"cyclonedx-py (requirements .*\n.*)", (ROOT / "Makefile").read_text())
    arguments = rule.replace("\\\n", " ").replace("build/sbom.json", str(made))
    ran(str(Path(sys.executable).with_name("cyclonedx-py")), *shlex.split(arguments), cwd=ROOT)
    listed = {one["name"]: one for one in msgspec.json.decode(made.read_bytes())["components"]}
    locked = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements/server.txt").read_text(), re.M)
    assert {name: listed[name]["version"] for name, _ in locked} == dict(locked)
    assert all(one["externalReferences"][0]["hashes"] for one in listed.values())
