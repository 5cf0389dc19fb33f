"""`python -m tests.fuzz`: every operation of the API, as often as asked for."""

from __future__ import annotations

import argparse
import sys
import tempfile

from tests.broker_process import broker_process
from tests.fuzz.run import PHASES, fuzz

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cases", type=int, default=100, help="fuzzed requests to each operation (100)")
parser.add_argument("--seed", type=int, default=1, help="another one makes other requests (1)")
parser.add_argument("--store", help="an SQLite file of its own, unless a URL is given")
chosen = parser.parse_args()
with tempfile.TemporaryDirectory(prefix="fairlane-fuzz-") as directory:
    store = chosen.store or f"sqlite:///{directory}/queue.db"
    with broker_process(store) as broker:
        done = fuzz(broker.url, cases=chosen.cases, seed=chosen.seed, phases=PHASES)
sys.stdout.write(done.stdout)
sys.exit(done.returncode)
