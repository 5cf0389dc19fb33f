"""One run of schemathesis."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
LIVE = "/api/v1/live"
"""A stream without an end, for which schemathesis would wait: it has a run of its own."""
PHASES = ("examples", "coverage", "fuzzing")
FOUND = ROOT / "build" / "fuzz"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


def guided(name: str, seconds: int) -> bool:
    """One parser for a while, by atheris in a process of its own; whether nothing failed."""
    FOUND.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(seconds), FOUND]
    log = FOUND / f"{name}.log"
    with log.open("wb") as output:
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, timeout=seconds + 300).returncode
    sys.stdout.write(f"{name}: {'well' if code == 0 else f'FAILED, see {log}'}\n")
    sys.stdout.flush()
    return code == 0


def fuzz(url: str, *, cases: int, seed: int, phases: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Fails if an answer is a 5xx or is not as the description says. What it found is in its `stdout`."""
    command: list[str | Path] = [
        *(SCHEMATHESIS, "run", f"{url}/openapi.json", "--no-color", "--warnings", "off"),
        *("--phases", ",".join(phases), "--checks", ",".join(CHECKS), "--mode", "all"),
        *("--max-examples", str(cases), "--seed", str(seed), "--generation-allow-x00", "true"),
        *("--generation-database", "none", "--suppress-health-check", "all"),
        *("--exclude-path", LIVE, "--max-response-time", "10", "--continue-on-failure", "--no-shrink"),
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="fairlane-fuzz-") as scratch:  # it leaves files where it runs
        return subprocess.run(
            command, cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
