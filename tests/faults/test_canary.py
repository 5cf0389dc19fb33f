"""Secrets that are used everywhere must appear nowhere.

Broker, worker and poller run as processes through success, errors and an outage. Then their files, output and arguments
are searched.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from fairlane.http.route_table import ROUTES
from tests.broker_process import _ADDRESS, FAIRLANE, STOP_SECONDS_MAX
from tests.faults.outages import _children, crashed
from tests.http.test_specs import document
from tests.poller.api import Api
from tests.postgres import running_server
from tests.until import until

ROOT = Path(__file__).parents[2]
CONTROL = "control-that-is-no-secret"
SPEC = """
queue Sealed { encrypted: true  delivery { dedup_seconds: 1d  max_attempts: 2  initial_backoff: 10ms } }
queue Typed { message_type { id: int } }
webhook Alert { queue: Sealed  verify: github { secret_env: "CANARY_HOOK_SECRET" } }
command Call { input { id: int } run: http POST "%(api)s/id?page_size=1" secret_env: "CANARY_CALL_SECRET" }
poller Shop { url: "%(api)s/id"  queue: Polled  token_env: "CANARY_POLL_SECRET"  items: "items"  every_seconds: 1s }
queue Polled {}
queue Commands { map_to: command Call { id: id } }
"""
OF_SPECS = ("hook", "call", "poll")
"""Secrets that specs name by environment variables, which are set where a spec may run."""
NAMED = {"queue": "Sealed", "partition": "Default", "group": "canary", "name": "Alert", "key": "canary", "version": "1"}
"""Names of existing objects, for routes that need one."""


class Canaries:
    """Secrets by purpose, each a unique text."""

    def __init__(self) -> None:
        self.of = {name: f"canary{secrets.token_hex(20)}" for name in ("jwt", "hook", "poll", "user", "query")}
        self.of["payload"] = f"canary{secrets.token_hex(8)}"
        self.of["call"] = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        self.of["encryption"] = secrets.token_hex(32)

    def __getitem__(self, name: str) -> str:
        return self.of[name]

    def forms(self, *but: str) -> dict[str, list[bytes]]:
        """Return the forms in which a secret may be written."""
        forms = {name: [text.encode(), base64.b64encode(text.encode())[:-4]] for name, text in self.of.items()}
        forms["encryption"].append(bytes.fromhex(self["encryption"]))
        return {name: some for name, some in forms.items() if name not in but}

    def found(self, data: bytes, *but: str) -> list[str]:
        return [name for name, forms in self.forms(*but).items() if any(form in data for form in forms)]


@contextmanager
def running(log: Path, *arguments: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [FAIRLANE, *arguments], cwd=ROOT, env=clean | environment, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(STOP_SECONDS_MAX) == 0, log.read_text()


def descendants(pid: int) -> list[int]:
    return [pid, *(found for child in _children(pid) for found in descendants(child))]


class Asking:
    """Requests to a broker, and their answers."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self.session, self.url, self.token = session, url, token
        self.refusals: list[bytes] = []

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        more = {"Content-Type": "application/json"} if data is not None else {}
        headers = {"Authorization": f"Bearer {self.token}"} | more | headers
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            found = await answer.read()
            if answer.status >= 400:
                self.refusals.append(found + repr(answer.headers).encode())
            return answer.status, found


@pytest.mark.may_block_loop  # it starts processes
@pytest.mark.timeout(300)
async def test_no_secret_is_found_where_it_does_not_belong(tmp_path: Path) -> None:
    canaries = Canaries()
    logs, data = tmp_path / "logs", tmp_path / "data"
    logs.mkdir()
    with running_server(18) as server, ExitStack() as processes:
        async with Api(3) as api, aiohttp.ClientSession() as session:
            socket = f"host={server.directory}"
            environment = {
                "FAIRLANE_STORE": f"postgresql://postgres:{canaries['user']}@/postgres?{socket}",
                "FAIRLANE_LISTEN_URL": f"postgresql://postgres@/postgres?{socket}&password={canaries['query']}",
                "FAIRLANE_JWT_SECRET": canaries["jwt"],
                "FAIRLANE_ENCRYPTION_KEY": canaries["encryption"],
                "FAIRLANE_OUTBOUND_ALLOW": "127.0.0.1",
                "CANARY_HOOK_SECRET": canaries["hook"],
                "CANARY_CALL_SECRET": canaries["call"],
                "CANARY_POLL_SECRET": canaries["poll"],
            }
            arguments = ("serve", "--port", "0", "--data-dir", str(data), "--workers", "2", "--log-format", "json")
            log = logs / "broker"
            broker = processes.enter_context(running(log, *arguments, environment=environment))
            url = (await until(lambda: _ADDRESS.search(log.read_text())))[1]
            claims = {"sub": "canary", "role": "admin", "exp": 4_102_444_800}
            token = canaries.of["token"] = jwt.encode(claims, canaries["jwt"], "HS256")
            asking = Asking(session, url, token)

            await _set_up(asking, canaries, api.url)
            user = {"FAIRLANE_KEY_FILE": str(_kept(tmp_path / "key", canaries["key"])), "FAIRLANE_SERVER": url}
            started = [
                processes.enter_context(
                    running(logs / "worker", "worker", "tests.faults.canary_app:app", environment=user)
                ),
                processes.enter_context(
                    running(
                        *(logs / "poller", "poll", f"{api.url}/id", "--queue", "Polled", "--name", "other"),
                        *("--items", "items", "--allow-private", "--every", "1s"),
                        environment=user | {"FAIRLANE_POLL_TOKEN": canaries["poll"]},
                    )
                ),
            ]
            await _succeed(asking, canaries)
            await _fail(asking, canaries)
            for header in ("authorization", "webhook-signature"):
                await until(lambda name=header: any(name in asked.headers for asked in api.asked))  # type: ignore[misc]
            async with crashed(server):
                await until(lambda: b"store unavailable" in log.read_bytes())
                status, _ = await asking.ask("POST", "/api/v1/push", _pushed("Sealed", canaries, "work"))
                assert status == 202
                await _fail(asking, canaries)
                assert canaries.found(_all_in(data)) == [], "the journal is sealed"
            await until(lambda: b"store available again" in log.read_bytes())
            await _look_around(asking, canaries)
            for process in (broker, *started):
                for pid in descendants(process.pid):
                    assert canaries.found(_started_with(pid)) == []
                    # An operator may pass secrets this way. The broker passes only those on that specs name.
                    assert pid == broker.pid or canaries.found(_environment(pid), *OF_SPECS) == []
            assert len(descendants(broker.pid)) == 3
            for credential in (canaries["jwt"], canaries["key"][:-1] + "x"):
                told = await asyncio.to_thread(_refused, user | {"FAIRLANE_KEY": credential})
                assert credential.encode() not in told
                assert canaries.found(told) == []
            processes.close()
            async with server.connect() as connection:
                await connection.execute("CHECKPOINT")
            stored = _all_in(server.directory)
            assert CONTROL.encode() in stored, "the search itself works"
            assert canaries.found(stored) == []
    for answer in asking.refusals:
        assert canaries.found(answer) == [], answer
    for path in logs.iterdir():
        assert canaries.found(path.read_bytes()) == [], path.read_text()
    assert canaries.found(_all_in(data)) == []


@pytest.fixture
def passable() -> Iterator[Path]:
    """Make a directory accessible to PostgreSQL, which runs as another user if we are root."""
    with tempfile.TemporaryDirectory(prefix="fairlane-canary-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.may_block_loop
@pytest.mark.timeout(300)
async def test_secrets_in_files_are_in_no_environment_and_the_embedded_postgresql_is_handed_none(
    passable: Path,
) -> None:
    """If settings are in a file, the environment of brokers contains only the variables that specs name."""
    canaries = Canaries()
    data, log = passable / "data", passable / "log"
    kept = f'jwt_secret = "{canaries["jwt"]}"\nencryption_key = "{canaries["encryption"]}"\n'
    config = _kept(passable / "fairlane.toml", kept)
    environment = {"CANARY_HOOK_SECRET": canaries["hook"]}
    words = ("serve", "--port", "0", "--store", "postgres", "--workers", "2", "--data-dir", str(data))
    with running(log, *words, "--config", str(config), environment=environment) as broker:
        await until(lambda: _ADDRESS.search(log.read_text()))
        brokers = descendants(broker.pid)
        [postmaster] = data.rglob("postmaster.pid")
        servers = descendants(int(postmaster.read_text().split()[0]))
        assert len(brokers) == 3
        assert len(servers) > 1
        for pid in brokers:
            assert canaries.found(_environment(pid) + _started_with(pid)) == ["hook"]
        for pid in servers:
            assert canaries.found(_environment(pid) + _started_with(pid)) == []
    assert canaries.found(log.read_bytes() + _all_in(data)) == []


async def _set_up(asking: Asking, canaries: Canaries, api: str) -> None:
    body = {"spec": document("Canary", SPEC % {"api": api})}
    status, answer = await asking.ask("POST", "/api/v1/spec/apply", body)
    assert status == 200, answer
    made = {"name": "canary", "role": "read-write", "expiresAt": "2090-01-01T00:00:00Z"}
    status, answer = await asking.ask("POST", "/api/v1/keys", made)
    assert status == 201, answer
    canaries.of["key"] = json.loads(answer)["key"]


def _pushed(queue: str, canaries: Canaries, do: str, **more: Any) -> Any:
    return {"items": [{"queue": queue, "payload": {"do": do, "card": canaries["payload"]}, **more}]}


async def _succeed(asking: Asking, canaries: Canaries) -> None:
    """Send messages that succeed, fail, become dead letters, are scheduled, and arrive by webhook."""
    for do in ("work", "fail", "give up"):
        status, answer = await asking.ask("POST", "/api/v1/push", _pushed("Sealed", canaries, do))
        assert status == 201, answer
    await asking.ask("POST", "/api/v1/push", _pushed("Sealed", canaries, "work", delayMs=3_600_000))
    await asking.ask("POST", "/api/v1/push", {"items": [{"queue": "Plain", "payload": CONTROL}]})
    await asking.ask("POST", "/api/v1/push", {"items": [{"queue": "Commands", "payload": {"id": 1}}]})
    hooked = json.dumps({"do": "work", "card": canaries["payload"]}).encode()
    signature = "sha256=" + hmac.new(canaries["hook"].encode(), hooked, hashlib.sha256).hexdigest()
    status, answer = await asking.ask("POST", "/hook/Alert", hooked, **{"X-Hub-Signature-256": signature})
    assert status == 202, answer

    async def given_up() -> bool:
        _, found = await asking.ask("GET", "/api/v1/dlq?queue=Sealed")
        return bool(json.loads(found)["messages"])

    await until(given_up)


async def _fail(asking: Asking, canaries: Canaries) -> None:
    """Send invalid requests, each with a secret where an error could repeat it."""
    card = canaries["payload"]
    for credential in (canaries["jwt"], canaries["key"][:-1] + "x", asking.token[:-2] + "xx", canaries["encryption"]):
        await asking.ask("GET", "/api/v1/status", Authorization=f"Bearer {credential}")
        await asking.ask("POST", "/api/v1/login", {"key": credential})
    await asking.ask("POST", "/hook/Alert", {"card": card}, **{"X-Hub-Signature-256": f"sha256={canaries['hook']}"})
    for body in (b'{"items":[{"queue":"Sealed","payload":{"card":"%b"' % card.encode(), b"\xff"):
        await asking.ask("POST", "/api/v1/push", body)
    await asking.ask("POST", "/api/v1/push", {"items": [{"queue": "Typed", "payload": {"id": card}}]})
    await asking.ask("POST", "/api/v1/spec/plan", {"spec": {"app": "Canary", "queues": 5}})


async def _look_around(asking: Asking, canaries: Canaries) -> None:
    """Request everything: metrics, exports, settings, keys, the audit log, pages, and named objects."""
    asked = 0
    for route in ROUTES:
        path = route.path
        for name, value in NAMED.items():
            path = path.replace(f"{{{name}}}", value)
        if route.method != "GET" or "{" in path or path.startswith(("/api/v1/live", "/api/v1/pop")):
            continue
        query = "?app=Canary" if "/spec/" in path else ""
        status, answer = await asking.ask("GET", path + query)
        asked += status == 200
        shows_payloads = ("payload",) if "browse" in route.needs else ()
        assert canaries.found(answer, *shows_payloads) == [], path
    assert asked > 60, "most of them are there"


def _refused(environment: dict[str, str]) -> bytes:
    """Return the output of a command with an invalid credential."""
    done = subprocess.run([FAIRLANE, "queue", "list"], env=os.environ | environment, capture_output=True, timeout=60)
    assert done.returncode != 0
    return done.stdout + done.stderr


def _kept(file: Path, text: str) -> Path:
    """Write a file that only its owner can read."""
    file.touch(mode=0o600)
    file.write_text(text)
    return file


def _environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def _started_with(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _all_in(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())
