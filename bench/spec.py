"""Measure what a spec costs a message: its type, its key, its mapping, and the signature of a webhook.

    python -m bench.spec
    python -m bench.spec --quick

By the CPU time of this process, so that the figures are those of one core, also on a machine that is busy. A missed
target is printed as MISSED and does not change the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.report import print_machine
from fairlane.hooks.schemes import PRESETS
from fairlane.hooks.signatures import sign, verify
from fairlane.spec.check import problems
from fairlane.spec.compile import compile_spec
from fairlane.spec.compiled_queue import CompiledQueue
from fairlane.spec.text.source import Source

SPEC = """
app IncidentManagement {
  queue WebhookIngress {
    message_type {
      payload: { incident: { id: string  title: string  urgency: string } }
      headers: map<string, string>
      source_ip: string
      received_at: time
    }
    key: payload.incident.id
    map_to: command Incident.CreateIncident {
      title: payload.incident.title
      severity: payload.incident.urgency == "high" ? "critical" : "high"
      source: "pagerduty"
      external_id: payload.incident.id
    }
  }
  command Incident.CreateIncident {
    input { title: string  severity: enum("critical", "high")  source: string  external_id: string }
  }
}
"""
MESSAGE = {
    "payload": {"incident": {"id": "P1", "title": "db is down", "urgency": "high", "notes": ["x" * 50] * 20}},
    "headers": {"x-webhook-id": "0192"},
    "source_ip": "203.0.113.7",
    "received_at": "2026-01-31T12:00:00Z",
}
TARGET = 50_000
SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_700_000_000.0


def rate(act: Callable[[], object], seconds: float) -> float:
    """How often a second of this core's time, over about so many of them."""
    done, began = 0, time.process_time()
    while (took := time.process_time() - began) < seconds:
        for _ in range(100):
            act()
        done += 100
    return done / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only try it")
    seconds = 0.05 if parser.parse_args().quick else 2.0
    compiled = compile_spec(Source("spec", SPEC), lambda name: "")
    assert not problems(compiled)
    queue = CompiledQueue(compiled.spec, "WebhookIngress")
    payload = json.dumps(MESSAGE).encode()
    rows: list[tuple[str, Callable[[], object], float | None]] = [
        ("type of a message", lambda: queue.check(payload), TARGET),
        ("key", lambda: queue.partition(MESSAGE), None),
        ("mapping of four fields, input checked", lambda: queue.command(MESSAGE), TARGET),
    ]
    for name, scheme in PRESETS.items():
        headers = sign(scheme, SECRET, payload, delivery_id="d-1", now=NOW)
        rows.append((f"signature, {name}", partial(verify, scheme, [SECRET], headers, payload, now=NOW), None))
    console = Console()
    print_machine(console, Path(tempfile.gettempdir()), None)
    table = Table("what", "a second", "target", title=f"one core, messages of {len(payload)} bytes")
    for name, act, target in rows:
        found = rate(act, seconds)
        told = "" if target is None else f"{target:,} {'holds' if found >= target else 'MISSED'}"
        table.add_row(name, f"{found:,.0f}", told)
    console.print(table)


if __name__ == "__main__":
    main()
