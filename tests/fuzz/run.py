"""One run of schemathesis."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jwt
import msgspec

from tests.broker_process import broker_process

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
LIVE = "/api/v1/live"
"""Paths of endless streams, which schemathesis would wait for. They have a run of their own."""
PHASES = ("examples", "coverage", "fuzzing")
FOUND = ROOT / "build" / "fuzz"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
AUTH_CHECKS = (*CHECKS, "ignored_auth", "object_level_authorization")
"""Credentials for a broker that requires them."""


def guided(name: str, seconds: int) -> bool:
    """Fuzz one parser for some seconds, with atheris in a separate process. Returns True if nothing failed."""
    FOUND.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(seconds), str(FOUND)]
    log = FOUND / f"{name}.log"
    with log.open("wb") as output:
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, timeout=seconds + 300).returncode
    sys.stdout.write(f"{name}: {'well' if code == 0 else f'FAILED, see {log}'}\n")
    sys.stdout.flush()
    return code == 0


def fuzz(
    url: str,
    *,
    cases: int,
    seed: int,
    phases: tuple[str, ...],
    callers: Mapping[str, str] | None = None,
    only: str = "",
) -> subprocess.CompletedProcess[str]:
    """Fails if an answer is a 5xx or is not as the description says. What it found is in its `stdout`.

    With `callers`, credentials by name: requests are the first one's. It also fails if one that was answered is
    answered without a credential or with a wrong one, or if another caller is shown what the first one made. `only` is
    the one path to ask for."""
    checks = CHECKS if callers is None else AUTH_CHECKS
    options = [
        *("--no-color", "--warnings", "off", "--phases", ",".join(phases), "--checks", ",".join(checks)),
        *("--mode", "all", "--max-examples", str(cases), "--seed", str(seed), "--generation-allow-x00", "true"),
        *("--generation-database", "none", "--suppress-health-check", "all"),
        *("--max-response-time", "10", "--continue-on-failure", "--no-shrink"),
        *(("--include-path", only) if only else ("--exclude-path", LIVE)),
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="fairlane-fuzz-") as scratch:  # it leaves files where it runs
        location = f"{url}/openapi.json"
        if callers is not None:
            location = _described(Path(scratch), url, callers)
            options += ["--url", url]
        return subprocess.run(
            [SCHEMATHESIS, "run", location, *options],
            cwd=scratch,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@contextmanager
def guarded_broker(directory: Path, *arguments: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a broker that asks for credentials, and two of administrators: of all, and of another tenant. They are
    tokens: no request takes those away, as it could a key."""
    secret = secrets.token_hex(32)
    config = directory / "guarded.toml"
    config.write_text(f'jwt_secret = "{secret}"\n')
    claims = {"all": {}, "other": {"tenant": "other"}}
    callers = {
        name: jwt.encode({"sub": name, "role": "admin", "exp": 4_102_444_800} | more, secret, "HS256")
        for name, more in claims.items()
    }
    with broker_process(f"sqlite:///{directory}/guarded.db", "--config", str(config), *arguments) as broker:
        yield broker.url, callers


def _described(scratch: Path, url: str, callers: Mapping[str, str]) -> str:
    """Leave the callers where schemathesis looks for them, and the description, which nobody is shown unasked."""
    names = list(callers)
    known = [
        {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {callers[name]}"}]}
        for name in names
    ]
    (scratch / "callers.json").write_bytes(msgspec.json.encode({"auth": known}))
    settings = f'[auth.wfc]\npath = "callers.json"\nuser = "{names[0]}"\n'
    if len(names) > 1:
        settings += f"peers = {msgspec.json.encode(names).decode()}\n"
    (scratch / "schemathesis.toml").write_text(settings)
    request = urllib.request.Request(f"{url}/openapi.json", headers={"Authorization": f"Bearer {callers[names[0]]}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        (scratch / "openapi.json").write_bytes(answer.read())
    return "openapi.json"
