"""Measure two checkouts in turns and compare them row by row.

Each checkout runs its own benchmark with the Python of its own `.venv`. Before each measurement it asks for its turn,
so that both are measured within seconds of each other and noise of the machine hits both. Rows that measure no code of
a checkout, such as the bare drivers, show how much noise there was.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.suite import TURN
from bench.tables import Table, figure

HEADS = ("section", "workload", "system", "this", "other", "ratio", "lowest to highest", "CPU ratio")
CAPTION = (
    "Median rates of both checkouts per second, the ratio of the medians, and the lowest and highest ratio of one "
    "round. A ratio above 1 means that this checkout is faster. The CPU ratio is that of broker and store per message; "
    "below 1 means that this checkout needs less."
)
Rows = dict[tuple[str, str, str], list[dict[str, float | None]]]
"""The rounds of each section, workload and system, as bench.json has them."""


class Checkout:
    """A benchmark that runs in another process, one measurement at a time."""

    def __init__(self, tree: Path, output: Path) -> None:
        self.tree = tree
        self.running = True
        self._output = output
        self._process: Process

    async def start(self, python: Path, options: Sequence[str]) -> None:
        """Start the benchmark and wait until it asks for its first turn."""
        if not (self.tree / "bench/compare.py").exists():
            raise SystemExit(f"{self.tree} has no benchmark that takes turns: copy bench/ of this checkout there")
        self._process = await asyncio.create_subprocess_exec(
            *(str(python), "-m", "bench", *options, "--in-turns", "--output", str(self._output)),
            cwd=self.tree,
            stdin=PIPE,
            stdout=PIPE,
        )
        await self._until_next()

    async def turn(self) -> None:
        """Run one measurement, and return when the benchmark asks for the next turn or has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._until_next()

    async def _until_next(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.strip() == TURN.encode():
                return
        self.running = False
        if await self._process.wait():
            raise SystemExit(f"the benchmark of {self.tree} ended with exit code {self._process.returncode}")

    async def stop(self) -> None:
        """End the benchmark at its next turn, so that it can stop the servers that it started."""
        if self.running:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._process.communicate()

    def rows(self) -> Rows:
        report: dict[str, Any] = json.loads((self._output / "bench.json").read_text(encoding="utf-8"))
        return {
            (section["name"], row["workload"], row["system"]): row["rounds"]
            for section in report["sections"]
            for row in section["rows"]
        }


async def compare(this: Path, other: Path, options: Sequence[str], output: Path) -> Table:
    """Measure both checkouts in turns and return the table of ratios, which is also written to compare.md."""
    checkouts = [Checkout(this, output / "this"), Checkout(other, output / "other")]
    started: list[Checkout] = []
    try:
        for checkout, python in zip(checkouts, (Path(sys.executable), other / ".venv/bin/python"), strict=True):
            await checkout.start(python, options)
            started.append(checkout)
        order = started
        while any(checkout.running for checkout in started):
            for checkout in order:
                if checkout.running:
                    await checkout.turn()
            order = order[::-1]  # neither always goes first
    finally:
        for checkout in started:
            await checkout.stop()
    table = ratios(checkouts[0].rows(), checkouts[1].rows())
    (output / "compare.md").write_text(f"{table.markdown()}\n", encoding="utf-8")
    return table


def ratios(this: Rows, other: Rows) -> Table:
    """Compare the rows that both checkouts have and whose rate was measured in every round.

    Rows that are equal in both are recorded figures, which say nothing about a checkout.
    """
    rows = []
    for key, mine in this.items():
        theirs = other.get(key, [])
        rates = [_values(rounds, "rate") for rounds in (mine, theirs)]
        if mine == theirs or len(rates[0]) != len(rates[1]) or not rates[0]:
            continue
        medians = [statistics.median(one) for one in rates]
        by_round = [a / b for a, b in zip(*rates, strict=True)]
        cpu = [_values(rounds, "broker_us", "store_us") for rounds in (mine, theirs)]
        rows.append(
            [
                *key,
                *(figure(median) for median in medians),
                f"{medians[0] / medians[1]:.3f}",
                f"{min(by_round):.2f} to {max(by_round):.2f}",
                f"{statistics.median(cpu[0]) / statistics.median(cpu[1]):.3f}" if all(map(any, cpu)) else "-",
            ]
        )
    return Table("This checkout and the other", HEADS, rows, CAPTION)


def _values(rounds: list[dict[str, float | None]], *names: str) -> list[float]:
    """Return the sum of these figures in each round that has any of them."""
    known = [[value for name in names if (value := one[name]) is not None] for one in rounds]
    return [sum(values) for values in known if values]
