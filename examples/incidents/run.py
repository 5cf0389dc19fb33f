"""The whole example in one command: a broker, the spec applied to it, a worker, and a webhook.

python examples/incidents/run.py            runs until Ctrl-C, so that you can send webhooks of your own
python examples/incidents/run.py --once     creates one incident and exits
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
FAIRLANE = str(Path(sys.executable).with_name("fairlane"))
SECRET = "PAGERDUTY_WEBHOOK_SECRET"
READY_SECONDS = 20


def main() -> None:
    os.environ.setdefault(SECRET, secrets.token_hex(16))
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-incidents-"))
        port = free_port()
        server = f"http://127.0.0.1:{port}"
        store = ["--store", f"sqlite:///{directory}/queue.db", "--data-dir", directory]
        begin(stack, "serve", "--port", str(port), *store)
        wait_for(port)
        fairlane("spec", "apply", "incidents.fairlane", "--server", server)
        begin(stack, "worker", "app:app", "--server", server)
        fairlane("hook", "test", "PagerDutyAlert", "--wait", str(READY_SECONDS), "--server", server)
        if "--once" in sys.argv[1:]:
            return
        print(f"\nSend another: {SECRET}={os.environ[SECRET]} fairlane hook test PagerDutyAlert --server {server}")
        print("Press Ctrl-C to stop.")
        try:
            time.sleep(7 * 24 * 3600)
        except KeyboardInterrupt:
            print()


def begin(stack: ExitStack, *arguments: str) -> None:
    """Start `fairlane` with these arguments and stop it when the example ends."""
    process = subprocess.Popen([FAIRLANE, *arguments], cwd=HERE)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def fairlane(*arguments: str) -> None:
    print(f"\n$ fairlane {' '.join(arguments)}", flush=True)
    subprocess.run([FAIRLANE, *arguments], cwd=HERE, check=True)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(port: int) -> None:
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
