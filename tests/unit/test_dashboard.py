"""The dashboard's files: small, and without a way to turn data into markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fairlane

ROOT = Path(fairlane.__file__).parent / "dashboard"
FILES = sorted(path for path in ROOT.rglob("*") if path.is_file())
LINES_MAX = 300
BYTES_MAX = 300_000
MARKUP = r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|eval\(|new Function)"
"""Ways in which text could become markup or code."""


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_and_makes_no_markup_of_data(path: Path) -> None:
    assert len(text(path).splitlines()) <= LINES_MAX
    assert re.findall(MARKUP, text(path)) == []
    assert re.findall(r"https?://(?!www\.w3\.org/)\S+", text(path)) == [], "it needs no internet"


def test_all_of_it_is_light() -> None:
    assert sum(path.stat().st_size for path in FILES) < BYTES_MAX


def test_the_page_has_no_code_or_style_inside() -> None:
    """Its content security policy would refuse inline code."""
    page = text(ROOT / "index.html")
    assert re.findall(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)", page) == []


def test_what_is_named_is_there() -> None:
    """Check imports of modules, pages of the routes, and files that the page loads."""
    for path in FILES:
        if path.suffix == ".js":
            for name in re.findall(r"""from "(\.[^"]+)";""", text(path)):
                assert (path.parent / name).resolve() in FILES, f"{path.name} imports {name}"
    for name in re.findall(r'module: "(\w[\w-]*)"', text(ROOT / "js" / "routes.js")):
        assert ROOT / "js" / "pages" / f"{name}.js" in FILES
    for name in re.findall(r'(?:href|src)="/dashboard/([^"]+)"', text(ROOT / "index.html")):
        assert ROOT / name in FILES
