"""The published clients, each in a virtual environment of its own that `make queen` fills from a lock file."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = OLDEST, NEWEST = "0.15.0", "2.6.0"


def python(version: str) -> Path:
    """Return the interpreter that has this version of the client, without Fairlane."""
    return _made(version, ".ready", "bin/python")


def own_tests() -> Path:
    """The tests that the newest client ships in its source package."""
    return _made(NEWEST, ".suite", f"suite/queen_mq-{NEWEST}/tests")


def _made(version: str, stamp: str, path: str) -> Path:
    environment = ROOT / f".venv-queen-{version}"
    if not (environment / stamp).exists():
        pytest.fail(f"queen-mq {version} is not installed: run `make queen`", pytrace=False)
    return environment / path
