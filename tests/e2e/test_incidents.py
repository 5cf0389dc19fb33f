"""The example of the README: a webhook becomes an incident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fairlane.spec.sample_webhook import added_to, sample_body
from fairlane.webhooks.samples import sample_of
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
    assert "added" not in ran.stdout, "the sample is what the sender sends"
    assert "in queue WebhookIngress, partition PSAMPLE" in ran.stdout
    assert 'command  Incident.CreateIncident {"title":"The database is down","severity":"critical"' in ran.stdout
    assert 'result   {"incident":"INC-1","title":"The database is down","severity":"critical"}' in ran.stdout


def test_its_spec_is_the_one_that_the_other_tests_are_about_for_what_pagerduty_sends() -> None:
    text = (EXAMPLE / "incidents.fairlane").read_text()
    text = text.replace("payload.event.data.", "payload.incident.")
    text = text.replace("idempotency: payload.event.id", 'idempotency: header "X-Webhook-Id"')
    assert compiled(text).spec == compiled(INCIDENTS).spec


def test_what_pagerduty_sends_becomes_the_command_as_it_is() -> None:
    spec = compiled((EXAMPLE / "incidents.fairlane").read_text()).spec
    sent = sample_of("pagerduty").body
    assert sample_body(spec, spec.webhooks["PagerDutyAlert"], sent) == sent, "nothing needs to be added"
    assert list(sent) == ["event"]
    old = compiled(INCIDENTS).spec
    filled = sample_body(old, old.webhooks["PagerDutyAlert"], sent)
    assert list(added_to(sent, filled)) == ["payload.incident"]
