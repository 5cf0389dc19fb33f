"""Holds the broker against slowhttptest: hundreds of clients that send their header, send their body, or read their
answer as slowly as they can.

For each attack, what the tool said: whether others were served all the while, and how it ended; and how many
connections the broker still had then. Of slow reads the system keeps what it took for sending, so the tool sees its
connections for longer than the broker has them. The deadlines themselves are tested in tests/http/test_server.py.

    make bench BENCH=slow_clients
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from urllib.request import urlopen

from tests.broker_process import broker_process

CONNECTIONS = 300
_APT = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "slowhttptest"]
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

ATTACKS = {
    "slow header": ["-H", "-i", "5", "-x", "24", "-l", "30", "-u", "{url}/livez"],
    "slow body": ["-B", "-i", "5", "-x", "10", "-s", "8192", "-l", "45", "-u", "{url}/api/v1/push"],
    # The largest answer that needs no data, ten times on each connection.
    "slow read": [
        "-X",
        "-n",
        "5",
        "-z",
        "32",
        "-w",
        "10",
        "-y",
        "20",
        "-k",
        "10",
        "-l",
        "100",
        "-u",
        "{url}/openapi.json",
    ],
}


def slowhttptest() -> str:
    """The program, installed if that is possible; SystemExit says what to do."""
    if shutil.which("slowhttptest") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(_APT, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, capture_output=True)
    found = shutil.which("slowhttptest")
    if found is None:
        raise SystemExit("slowhttptest is missing: install it (apt install slowhttptest) and run this again")
    return found


def attack(program: str, url: str, arguments: list[str]) -> str:
    command = [program, "-c", str(CONNECTIONS), "-r", "100", "-p", "3", *(part.format(url=url) for part in arguments)]
    said = _COLOURS.sub("", subprocess.run(command, capture_output=True, text=True, timeout=180).stdout)
    served = set(re.findall(r"service available:\s*(\w+)", said))
    end = re.search(r"Test ended on (\d+)\w+ second\s*Exit status: ([^\n]+)", said)
    ended = f"after {end[1]} s: {end[2].strip()}" if end else "without a word"
    return f"others were served: {'always' if served == {'YES'} else sorted(served)}; ended {ended}"


def connections(url: str) -> str:
    """That the broker has, beside the one that asks."""
    with urlopen(f"{url}/metrics", timeout=10) as answer:
        found = re.search(r"^fairlane_http_connections (\d+)\.0$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return f"the broker has {int(found[1]) - 1} connections"


def main() -> None:
    program = slowhttptest()
    with tempfile.TemporaryDirectory() as directory, broker_process(f"sqlite:///{directory}/queue.db") as broker:
        for name, arguments in ATTACKS.items():
            found = attack(program, broker.url, arguments)
            print(f"{name:12} {CONNECTIONS} connections; {found}; {connections(broker.url)}", flush=True)


if __name__ == "__main__":
    main()
