"""What the README shows runs as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    [program] = blocks("README.md", "python")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "customer-7 {'total': 42}\n"


def test_every_test_that_a_guarantee_names_is_there() -> None:
    page = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    sources = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    for named in re.findall(r"`(test_\w+)`", page):
        assert any(f"def {named}(" in source for source in sources.values()), named
    for named in re.findall(r"`(test_\w+\.py)`", page):
        assert any(path.name == named for path in sources), named


def test_every_page_that_the_readme_links_is_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (ROOT / target).exists(), target
