"""The generators that people use read /openapi.json, and what they generate works against a broker."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess, broker_process

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-generators"
pytestmark = [pytest.mark.may_block_loop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(f"sqlite:///{tmp_path_factory.mktemp('broker')}/queue.db") as broker:
        yield broker


@pytest.fixture
def description(broker: BrokerProcess, tmp_path: Path) -> Path:
    if not (ENVIRONMENT / ".ready").exists():
        pytest.fail("the generators are not installed: run `make .venv-generators/.ready`", pytrace=False)
    file = tmp_path / "openapi.json"
    with urllib.request.urlopen(f"{broker.url}/openapi.json", timeout=60) as answer:
        file.write_bytes(answer.read())
    return file


def run(folder: Path, *command: str | Path) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "FAIRLANE_"))}
    variables |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [ENVIRONMENT / "bin" / command[0], *command[1:]],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def test_a_generated_client_pushes_pops_and_acks(broker: BrokerProcess, description: Path) -> None:
    folder = description.parent
    said = run(
        folder, "openapi-python-client", "generate", "--path", description, "--meta", "none",
        "--output-path", folder / "fairlane_api",
    )  # fmt: skip
    assert "WARNING" not in said, said
    assert run(folder, "python", Path(__file__).parent / "generated_client.py", broker.url) == "generated\n"


def test_models_are_generated_for_the_answers(description: Path) -> None:
    folder = description.parent
    run(
        folder, "datamodel-codegen", "--input", description, "--input-file-type", "openapi", "--output", "models.py",
        "--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin",
    )  # fmt: skip
    code = (
        'import models; found = models.PushedItem.model_validate_json(\'{"index": 0, "status": "queued", '
        '"transaction_id": "t", "trace_id": null, "queueName": "q"}\'); print(found.queueName)'
    )
    assert run(folder, "python", "-W", "error", "-c", code) == "q\n"
