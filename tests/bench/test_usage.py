"""The usage of a process includes its children, even those that have ended."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.usage import difference, usage_of

BYTES = 1 << 20
CHILD = f"""
import os, sys, time
while time.process_time() < 0.2: pass
with open(sys.argv[1], "wb") as file:
    file.write(bytes({BYTES}))
    os.fsync(file.fileno())
"""
PARENT = """
import subprocess, sys
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", sys.argv[1], line.strip()], check=True)
    print("ended", flush=True)
"""


def test_a_child_that_ended_is_counted_with_its_parent(tmp_path: os.PathLike[str]) -> None:
    told = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(told, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        before = usage_of([parent.pid])
        print(os.path.join(tmp_path, "file"), file=parent.stdin, flush=True)
        assert parent.stdout.readline() == "ended\n"
        used = difference(before, usage_of([parent.pid]))
        parent.stdin.close()
    assert 0.15 <= used.cpu_seconds < 5, "all but what is less than a tick of the clock"
    assert used.written_bytes >= BYTES
