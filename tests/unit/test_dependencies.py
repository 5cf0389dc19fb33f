"""Lower bounds of the dependencies in pyproject.toml: no install gets a version that was not tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pinned(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE))


def bounds(wanted: list[str]) -> dict[str, str]:
    return {found[1]: found[2] for one in wanted if (found := re.match(r"([a-z0-9-]+)>=([^\s;]+)", one))}


def test_the_base_install_is_tested_with_its_lower_bounds() -> None:
    """`tests/packaging` runs the client's tests with the pinned versions of requirements/lowest.txt."""
    lowest = pinned("lowest.txt")
    found = bounds(PROJECT["dependencies"])
    assert len(found) == len(PROJECT["dependencies"])
    assert found == {name: lowest[name] for name in found}


@pytest.mark.parametrize("extra", ["worker", "server"])
def test_the_lower_bound_of_an_extra_is_the_locked_version(extra: str) -> None:
    """A looser bound would allow versions with known weaknesses."""
    locked = pinned("server.txt")
    found = bounds(PROJECT["optional-dependencies"][extra])
    assert found
    assert found == {name: locked[name] for name in found}
