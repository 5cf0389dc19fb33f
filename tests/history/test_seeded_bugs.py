"""The positive controls: `fairlane verify` finds each seeded bug. A campaign without them proves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.history.seeded_bugs import BUGS, SECONDS_MAX, SeededBug, run


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_seeded_bug_is_found(bug: SeededBug, tmp_path: Path) -> None:
    found = run(bug, tmp_path)
    said = f"{found.stdout[-3000:]}\n{found.stderr[-3000:]}"
    assert found.returncode == 1, said
    broken = {one["promise"].split()[0] for one in json.loads(found.stdout)["promises"] if one["violations"]}
    assert broken.intersection(bug.promise.split()), said


def test_the_docs_list_every_control() -> None:
    page = Path("docs/reliability.md").read_text()
    for bug in BUGS:
        assert f"| `{bug.name}` | {bug.does} | {bug.promise.replace(' ', ', ')} |" in page
