"""The examples for web frameworks, run as their readers run them, against a real broker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess, broker_process
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "web"
BIN = Path(sys.executable).parent
SECONDS = 60.0
pytestmark = pytest.mark.may_block_loop  # it waits for other processes


def environment(broker: BrokerProcess, database: str = "") -> dict[str, str]:
    names = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    return {**names, "FAIRLANE_SERVER": broker.url, "DATABASE_URL": database, "PYTHONUNBUFFERED": "1"}


def run(command: list[str], variables: dict[str, str]) -> str:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=EXAMPLES,
        env=variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def running(command: list[str], variables: dict[str, str], *, until: str = "") -> Iterator[str]:
    """Run a program for the length of a block, and yield what `until` found in its output."""
    with subprocess.Popen(
        [str(BIN / command[0]), *command[1:]],
        cwd=EXAMPLES,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield _found(process, until)
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def _found(process: subprocess.Popen[str], until: str) -> str:
    said = []
    assert process.stdout is not None
    for line in process.stdout if until else ():
        said.append(line)
        if match := re.search(until, line):
            return match[0]
    assert not until, "".join(said)
    return ""


def ask(url: str, body: Any = None) -> Any:
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, sent, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read())


def refusal(url: str, body: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(url, body)
    refused.value.close()
    return refused.value.code


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        yield broker


@pytest.fixture
async def database(postgres18: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(postgres18)


URL = r"http://127\.0\.0\.1:\d+"


def test_fastapi_takes_models_and_runs_the_worker_itself(broker: BrokerProcess) -> None:
    with running(["uvicorn", "fastapi_app:web", "--port", "0"], environment(broker), until=URL) as web:
        [id] = ask(f"{web}/orders", {"customer": "Ada", "items": 3}).values()
        assert ask(f"{web}/orders/Ada/{id}") == {"total": 126}
        assert refusal(f"{web}/orders", {"customer": "Ada", "items": 0}) == 422


def test_flask_pushes_with_the_blocking_client_to_a_worker_of_its_own(broker: BrokerProcess) -> None:
    variables = environment(broker)
    with (
        running(["flask", "--app", "flask_app", "run", "--port", "0"], variables, until=URL) as web,
        running(["fairlane", "worker", "run", "flask_app:jobs"], variables),
    ):
        [id] = ask(f"{web}/orders/Ada", {"items": 2}).values()
        assert ask(f"{web}/orders/Ada/{id}") == {"total": 84}


def test_django_stores_an_order_and_its_message_in_one_transaction(database: str, tmp_path: Path) -> None:
    with broker_process(database) as broker:
        variables = environment(broker, database)
        run(["python", "django_app.py", "migrate"], variables)
        with (
            running(["uvicorn", "django_app:web", "--port", "0"], variables, until=URL) as web,
            running(["fairlane", "worker", "run", "django_app:jobs"], variables),
        ):
            [id] = ask(f"{web}/orders", {"items": 2}).values()
            assert refusal(f"{web}/orders", {"items": 101}) == 500
            give_up_at = time.monotonic() + SECONDS
            while (found := ask(f"{web}/orders/{id}"))["total"] is None and time.monotonic() < give_up_at:
                time.sleep(0.1)
            assert found == {"total": 84, "orders": 1}


def test_sqlalchemy_commits_the_effect_of_a_handler_with_its_ack(database: str) -> None:
    with broker_process(database) as broker:
        printed = run(["python", "sqlalchemy_app.py"], environment(broker, database))
    assert printed.splitlines() == ["order 1 costs 126; 1 receipt", "its message is completed"]


def test_each_example_is_listed() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == {
        *re.findall(r"\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())
    }
