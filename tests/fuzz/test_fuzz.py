"""A short run of `make fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_process import broker_process
from tests.fuzz.run import fuzz


@pytest.mark.timeout(600)  # some twenty seconds, on a machine with nothing else to do
def test_every_answer_is_one_that_the_description_knows(tmp_path: Path) -> None:
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        done = fuzz(broker.url, cases=10, seed=1, phases=("fuzzing",))
    assert done.returncode == 0, done.stdout
    assert "generated" in done.stdout
