"""PgQueuer with a handler that does nothing: `python pgqueuer.py URL JOBS BATCH_SIZE`, the payload on stdin."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib.metadata import version

sys.path.pop(0)  # this file has the same name as the package

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


async def main(url: str, jobs: int, batch_size: int) -> None:
    payload = sys.stdin.buffer.read()
    async with asyncpg.create_pool(url, min_size=4, max_size=10) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()
        for first in range(0, jobs, 1000):
            count = min(1000, jobs - first)
            await queries.enqueue(["noop"] * count, [payload] * count, [0] * count)
        queue = PgQueuer(driver)
        left = jobs
        done = asyncio.Event()

        @queue.entrypoint("noop")
        async def noop(job: Job) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        began, cpu = time.perf_counter(), time.process_time()
        running = asyncio.create_task(queue.run(batch_size=batch_size))
        await done.wait()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        queue.shutdown.set()
        await asyncio.wait([running], timeout=10)
    print(json.dumps({"version": version("pgqueuer"), "rate": jobs / seconds, "cpu": cpu / jobs * 1e6}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
