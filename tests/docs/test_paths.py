"""Files and folders that the docs name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.sections import SECTIONS
from fairlane import pytest_plugin
from fairlane.cli.main import GROUPS
from fairlane.http.route_table import ROUTES
from tests.cli.commands import commands, spellings

ROOT = Path(__file__).parents[2]
PLACES = (ROOT, ROOT / "src/fairlane")
PATH = re.compile(r"(?<![\w.])(?:[a-z_]+/)+[a-z_]+\.(?:py|sql)")


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/http-server.md", "CONTRIBUTING.md"])
def test_a_path_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"https?://\S+", "", text)
    named = {
        path
        for quoted in re.findall(r"`([^`\n]+)`|^ {2}(\S+\.py)", text, re.M)
        for path in PATH.findall("".join(quoted))
    }
    assert named, "a page that names no path needs no test"
    assert sorted(path for path in named if not any((place / path).exists() for place in PLACES)) == []


def test_every_section_of_the_benchmark_is_on_its_page() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert {section.name for section in SECTIONS} == set(re.findall(r"^\| `(\w+)`", page, re.M))


TEXTS = {path.name: path.read_text(encoding="utf-8") for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]}


def test_every_path_of_the_api_that_a_page_names_is_served() -> None:
    served = {re.sub(r"\{\w+\}", "{}", route.path) for route in ROUTES}
    named = {
        (page, re.sub(r"\{\w+\}", "{}", path).rstrip("./"))
        for page, text in TEXTS.items()
        for path in re.findall(r"(?<![\w.:])(/(?:api|admin|streams)/[\w{}/.-]*)", text)
    }
    # In example requests, names stand in place of route parameters.
    shown = [re.compile(re.sub(r"\{\}", "[^/]+", re.escape(path).replace(r"\{\}", "{}"))) for path in served]
    assert sorted(one for one in named if not any(path.fullmatch(one[1]) for path in shown)) == []


def test_every_command_that_a_page_names_is_there() -> None:
    known = commands()
    for page, text in TEXTS.items():
        for quoted in re.findall(r"`fairlane ([a-z][^`]*)`", text):
            words = quoted.replace("\n", " ").split()
            name = next((name for name in (" ".join(words[:2]), words[0]) if name in known), None)
            if name is None:
                assert words[0] in GROUPS, f"{page}: fairlane {quoted}"
                continue
            given = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
            assert given <= spellings(known[name]) | {"--help"}, f"{page}: fairlane {quoted}"


def test_every_metric_that_a_page_names_is_explained() -> None:
    """Names of pytest fixtures begin like those of metrics."""
    table = set(re.findall(r"^\| `(fairlane_\w+)`", TEXTS["monitoring.md"], re.M))
    for page, text in TEXTS.items():
        for name in re.findall(r"`(fairlane_\w+?)(?:_bucket|_sum|_count)?[`{]", text):
            assert name in table or hasattr(pytest_plugin, name), f"{page}: {name}"
