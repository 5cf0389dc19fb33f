"""Run random traffic and random faults against real brokers, and check every promise on what the clients saw.

    python -m tests.history --store postgresql --seconds 600 --seed 7

Exits with 1 and prints the violations if there are any. The same seed chooses the same traffic and faults, though not
the same timing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.history.checks import violations
from tests.history.clients import Clients
from tests.history.nemesis import Nemesis
from tests.history.preloaded import Faults, compile_library
from tests.history.record import History
from tests.history.workload import RULES, Workload
from tests.postgres import PostgresServer, running_server

QUIET_SECONDS = 3.0
LOG_LINES_SHOWN = 200
"""Last lines of each broker's log that are shown beside violations."""


async def run(store: str, seconds: float, seed: int, directory: Path) -> list[str]:
    """Run one history, and return its violations."""
    library = compile_library(directory)
    chosen = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        server: PostgresServer | None = None
        server_faults: Faults | None = None
        url, count = f"sqlite:///{directory}/queue.db", 1
        if store == "postgresql":
            server_faults = Faults(library, "server")
            server = stack.enter_context(running_server(18, environment=server_faults.environment))
            url, count = server.url(), 2
        brokers, broker_faults = [], []
        for number in range(count):
            faults = Faults(library, f"broker{number}")
            broker = BrokerProcess(url, data_dir=directory / str(number), environment=faults.environment)
            broker.start()
            stack.callback(_stop, broker)
            brokers.append(broker)
            broker_faults.append(faults)
        clients = Clients(brokers, random.Random(chosen.random()))
        stack.push_async_callback(clients.close)
        workload = Workload(clients)
        nemesis = Nemesis(random.Random(chosen.random()), brokers, broker_faults, server, server_faults)
        await workload.start()
        await asyncio.sleep(QUIET_SECONDS)
        await nemesis.run(seconds)
        mended_at = time.monotonic()
        await workload.finish()
        print(f"drained and read {time.monotonic() - mended_at:.1f} s after the last fault")
        _print_summary(clients.history, nemesis)
        broken = violations(clients.history, RULES)
        for broker in brokers if broken else ():
            print("".join(broker.log[-LOG_LINES_SHOWN:]))
        return broken


def _stop(broker: BrokerProcess) -> None:
    if broker.running:
        broker.stop()


def _print_summary(history: History, nemesis: Nemesis) -> None:
    print(f"pushes: {dict(Counter(push.fate for push in history.pushes))}")
    print(f"acks: {dict(Counter(ack.fate for ack in history.acks))}")
    print(f"deliveries: {len(history.deliveries)}, dead letters: {len(history.dead)}, replays: {len(history.replays)}")
    print(f"messages in the log: {sum(map(len, history.log.values()))}")
    print(f"faults: {dict(nemesis.made)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], required=True)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to make faults")
    parser.add_argument("--seed", type=int, default=None, help="chooses traffic and faults; random if not given")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"{arguments.store}, {arguments.seconds:.0f} s of faults, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fairlane-history-") as directory:
        broken = asyncio.run(run(arguments.store, arguments.seconds, seed, Path(directory)))
    for violation in broken:
        print(f"VIOLATION: {violation}")
    print(f"{len(broken)} violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
