"""The glossary names tables, paths and commands that exist."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from fairlane.http.route_table import ROUTES
from fairlane.store.schema import load
from tests.cli.commands import commands, spellings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "concepts.md").read_text()
ROWS = [row.split("|")[1:-1] for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| word ")]


def spelled(column: int) -> list[str]:
    return sorted({code for row in ROWS for code in re.findall(r"`([^`]+)`", row[column])})


def schema(dialect: str) -> str:
    directory = files("fairlane.store") / dialect
    texts = [load(f"fairlane.store.{dialect}").text, (directory / "views.sql").read_text()]
    folder = directory / "functions"
    return "\n".join(texts + ([one.read_text() for one in folder.iterdir()] if folder.is_dir() else []))


SCHEMA = schema("sqlite") + schema("postgres")


def test_the_glossary_has_about_forty_words() -> None:
    assert 40 <= len(ROWS) <= 60


@pytest.mark.parametrize("name", spelled(2))
def test_a_table_or_column_of_the_glossary_is_in_the_schema(name: str) -> None:
    for part in name.removesuffix("…").removeprefix("fairlane.").split("."):
        assert re.search(rf"\b{part}", SCHEMA), part


@pytest.mark.parametrize("path", [path for path in spelled(3) if path.startswith("/")])
def test_a_path_of_the_glossary_is_served(path: str) -> None:
    assert path in {route.path for route in ROUTES}


@pytest.mark.parametrize("line", [line for line in spelled(4) if line.startswith("fairlane ")])
def test_a_command_of_the_glossary_is_there(line: str) -> None:
    words = [word for word in line.split()[1:] if word.islower()]
    options = {word for word in words if word.startswith("--")}
    named = [one for name, one in commands().items() if name.split() == [word for word in words if word not in options]]
    beneath = [name for name in commands() if words and name.split()[0] == words[0]]
    assert named or (beneath and len(words) == 1)
    assert options <= {name for one in named for name in spellings(one)}
