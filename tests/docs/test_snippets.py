"""The code blocks of the README run as printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess, broker_process

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(f"sqlite:///{tmp_path}/broker.db") as broker:
        yield broker


def run(command: list[str], directory: Path, broker: BrokerProcess) -> str:
    """Run a command as printed, except for the address of the broker. Returns its output."""
    environment = os.environ | {
        "FAIRLANE_SERVER": broker.url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
    }
    command = [part.replace("http://127.0.0.1:6632", broker.url) for part in command]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_curl_lines_and_the_commands_of_the_readme_do_what_it_says(tmp_path: Path, broker: BrokerProcess) -> None:
    _, requests, commands, _ = blocks("README.md", "sh")
    push, pop, ack = (run(["sh", "-c", lines], tmp_path, broker) for lines in requests.split("\n\n"))
    assert json.loads(push)[0]["status"] == "queued"
    [popped] = json.loads(pop)["messages"]
    assert (popped["partition"], popped["data"]) == ("customer-7", {"total": 42})
    assert json.loads(ack)[0]["success"], ack
    again = run(["sh", "-c", requests.split("\n\n")[0]], tmp_path, broker)
    assert json.loads(again)[0]["status"] == "duplicate"

    said = [run(["sh", "-c", line], tmp_path, broker) for line in commands.splitlines()]
    assert said[2].count("\n") == 1, "what was acked does not come again"
    assert said[5].count("\n") == 2, "a group sent back gets everything again"
    assert "orders" in said[3]


def test_the_programs_of_the_readme_run(tmp_path: Path, broker: BrokerProcess) -> None:
    programs = blocks("README.md", "python")
    assert len(programs) == 2
    for program in programs:
        printed = run([sys.executable, "-c", program], tmp_path, broker)
        assert printed == "customer-7 {'total': 42}\n"


def test_every_test_that_a_page_names_is_there() -> None:
    page = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    sources = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    for named in re.findall(r"`(test_\w+)`", page):
        assert any(f"def {named}(" in source for source in sources.values()), named
    for named in re.findall(r"`(test_\w+\.py)`", page):
        assert any(path.name == named for path in sources), named


def test_every_page_that_the_readme_links_is_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (ROOT / target).exists(), target
