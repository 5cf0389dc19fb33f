"""What an ordinary install of this package may get: nothing older than what the tests ran with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_lower_bound_of_every_dependency_is_the_locked_version() -> None:
    """Older ones are allowed by a looser bound, and some of them are known to be unsafe."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", (ROOT / "requirements/server.txt").read_text(), re.MULTILINE))
    for wanted in [*project["dependencies"], *project["optional-dependencies"]["server"]]:
        name, bound = re.match(r"([a-z0-9-]+)>=([^\s;]+)", wanted).groups()  # type: ignore[union-attr]
        assert bound == locked[name], wanted
