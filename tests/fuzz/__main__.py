"""`python -m tests.fuzz`: every parser of bytes from outside, then every operation of the API, as often as asked, at a
broker for everybody and at one that asks for credentials."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.broker_process import broker_process
from tests.fuzz.parsers import CORPUS, TARGETS
from tests.fuzz.run import FOUND, PHASES, fuzz, guarded_broker, guided

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cases", type=int, default=100, help="fuzzed requests to each operation (100)")
parser.add_argument("--seed", type=int, default=1, help="another one makes other requests (1)")
parser.add_argument("--store", help="an SQLite file of its own, unless a URL is given")
parser.add_argument("--seconds", type=int, default=10, help="for each parser of bytes from outside (10)")
chosen = parser.parse_args()
failed = [name for name in TARGETS if not guided(name, chosen.seconds)]
if failed:
    sys.exit(f"these parsers failed: {', '.join(failed)}; put what {FOUND} has of them into {CORPUS}, and mend them")
found = []
with tempfile.TemporaryDirectory(prefix="fairlane-fuzz-") as directory:
    store = chosen.store or f"sqlite:///{directory}/queue.db"
    with broker_process(store) as broker:
        found.append(fuzz(broker.url, cases=chosen.cases, seed=chosen.seed, phases=PHASES))
    with guarded_broker(Path(directory)) as (url, callers):
        phases = (*PHASES, "stateful")  # in which one caller makes what the other asks for
        found.append(fuzz(url, cases=chosen.cases, seed=chosen.seed, phases=phases, callers=callers))
for done in found:
    sys.stdout.write(done.stdout)
sys.exit(max(done.returncode for done in found))
