"""The example runs with one command and ends with the right result, although many of its steps fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_customer_of_the_shop_is_charged_once_though_much_fails() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    run = subprocess.run(
        [sys.executable, "-m", "examples.shop", "--orders", "40"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    said = run.stdout.splitlines()
    assert said[-1] == "each customer was charged once"
    ended = re.fullmatch(
        r"40 orders: 40 charges, 38 mails sent, 2 undeliverable, 24 prices, (\d+) reports; (\d+) attempts .*", said[-2]
    )
    assert ended, said[-2]
    assert int(ended[1]) >= 1
    assert int(ended[2]) >= 5
    assert "dead letter: 'nobody' is not an address" in said
    assert "  price of article 3 changed" in said
    assert "  price of article 4 deleted" in said
