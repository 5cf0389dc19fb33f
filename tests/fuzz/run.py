"""One run of schemathesis."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
PHASES = ("examples", "coverage", "fuzzing")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


def fuzz(url: str, *, cases: int, seed: int, phases: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Fails if an answer is a 5xx or is not as the description says. What it found is in its `stdout`."""
    command: list[str | Path] = [
        *(SCHEMATHESIS, "run", f"{url}/openapi.json", "--no-color", "--warnings", "off"),
        *("--phases", ",".join(phases), "--checks", ",".join(CHECKS), "--mode", "all"),
        *("--max-examples", str(cases), "--seed", str(seed), "--generation-allow-x00", "true"),
        *("--generation-database", "none", "--suppress-health-check", "all"),
        *("--max-response-time", "10", "--continue-on-failure", "--no-shrink"),
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="fairlane-fuzz-") as scratch:  # it leaves files where it runs
        return subprocess.run(
            command, cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
