"""The example of the README: a webhook becomes an incident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spec.samples import INCIDENTS, compiled

EXAMPLE = Path(__file__).parents[2] / "examples/incidents"


def test_one_command_shows_an_incident_created() -> None:
    """A fresh broker, `fairlane spec apply`, a worker, `fairlane hook test`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    ran = subprocess.run(
        [sys.executable, EXAMPLE / "run.py", "--once"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "+ webhook PagerDutyAlert" in ran.stdout
    assert "answer   202 " in ran.stdout
    assert "in queue WebhookIngress, partition PSAMPLE" in ran.stdout
    assert 'command  Incident.CreateIncident {"title":"The database is down","severity":"critical"' in ran.stdout
    assert 'result   {"incident":"INC-1","title":"The database is down","severity":"critical"}' in ran.stdout


def test_its_spec_is_the_one_that_the_other_tests_are_about() -> None:
    assert compiled((EXAMPLE / "incidents.fairlane").read_text()).spec == compiled(INCIDENTS).spec
