"""Files and folders that the docs name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
