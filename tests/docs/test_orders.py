"""The order service runs with one command and prints what its README promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "examples/orders/README.md"


def test_the_tour_of_the_order_service_ends_as_promised() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    run = subprocess.run(
        [sys.executable, "-m", "examples.orders"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    sales, parcel, labels, invoice, *trace = run.stdout.splitlines()
    assert sales == "sales: {'Ada': 126, 'Bob': 0}; the order of Bob was refused with 409"
    assert parcel == "the parcel was cancelled while it was processing"
    took = re.fullmatch(r"10 labels took ([0-9.]+) s at 5 per second", labels)
    assert took, labels
    assert float(took[1]) >= 0.9, "the other five wait for the next second"
    assert invoice == "the invoice failed: KeyError: 'address'"
    assert {sales, parcel, invoice} <= set(README.read_text().splitlines())
    assert any("examples/orders/app.py" in line and "send_invoice" in line for line in trace), trace


def test_the_readme_names_functions_that_exist() -> None:
    from examples.orders import app

    rows = [line.split("|")[1] for line in README.read_text().splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(named) >= 8
    assert not [name for name in named if not hasattr(app, name)]
