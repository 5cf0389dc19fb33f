"""An app for worker processes. Its handlers write what they do to the file named by JOURNAL."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec

from fairlane import App, Context

app = App("jobs")
QUEUE = os.environ.get("QUEUE", "jobs")
LEASE_SECONDS = int(os.environ.get("LEASE_SECONDS", "60"))


class Job(msgspec.Struct):
    id: int
    seconds: float = 0.0
    first_seconds: float | None = None
    """Duration of the first attempt, if it differs from later ones."""
    poison: bool = False

    def takes(self, ctx: Context) -> float:
        return self.seconds if self.first_seconds is None or ctx.attempt > 1 else self.first_seconds


def note(what: str, job: Job, ctx: Context) -> None:
    """Write one line in one call, so that lines of several processes do not mix."""
    line = f"{what} {job.id} {ctx.attempt} {os.getpid()}\n".encode()
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


@app.handler(QUEUE, lease_seconds=LEASE_SECONDS)
async def work(job: Job, ctx: Context) -> None:
    note("began", job, ctx)
    if job.poison:
        raise ValueError("poison")
    try:
        await asyncio.sleep(job.takes(ctx))
    except asyncio.CancelledError:
        note("cancelled", job, ctx)
        raise
    note("done", job, ctx)


@app.handler(f"{QUEUE}.plain", lease_seconds=LEASE_SECONDS)
def work_plainly(job: Job, ctx: Context) -> None:
    note("began", job, ctx)
    time.sleep(job.takes(ctx))
    note("done", job, ctx)


def refuse(data: dict[str, str]) -> None:
    raise ValueError(f"the card {data['card']} was refused")


def note_and_wait(data: dict[str, str]) -> None:
    """Write the process id to a file, and return when another file exists."""
    began, go_on = Path(data["began"]), Path(data["go_on"])
    began.write_text(str(os.getpid()))
    while not go_on.exists():
        time.sleep(0.01)
