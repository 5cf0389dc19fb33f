"""Release files: the changelog has the version, and workflows and hooks run existing targets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from tests.upgrade.releases import PREVIOUS

ROOT = Path(__file__).parents[2]
CHANGELOG_LINES_MAX = 80


def test_the_changelog_has_a_short_section_for_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]\n" in text
    section = re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert section, f"CHANGELOG.md says nothing of {version}"
    assert len(section[0].splitlines()) <= CHANGELOG_LINES_MAX


def test_the_previous_release_is_the_one_beside_which_brokers_are_tested() -> None:
    releases = re.findall(r"^## (\d[\w.]*) - ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert (f"v{releases[1]}" if len(releases) > 1 else None) == PREVIOUS


def test_workflows_run_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text())["jobs"]
        named = [one for job in jobs.values() for one in job.get("strategy", {}).get("matrix", {}).get("target", [])]
        run = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        called = {one.split()[0] for one in named} | set(re.findall(r"make ([a-z-]+)", "\n".join(run)))
        assert called
        assert called <= targets, file.name


def test_hooks_run_tools_of_the_environment() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    check = re.search(r"^check:.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert check
    for hook in hooks:
        assert hook["entry"].startswith(".venv/bin/")
        assert f"$(BIN)/{hook['name']}" in check[1], "make check runs it, too"
