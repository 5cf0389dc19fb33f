"""Procrastinate with a task that does nothing: `python procrastinate.py URL JOBS CONCURRENCY`, the payload on stdin."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib.metadata import version

sys.path.pop(0)  # this file has the same name as the package

from procrastinate import App, PsycopgConnector


async def main(url: str, jobs: int, concurrency: int) -> None:
    data = json.loads(sys.stdin.buffer.read())
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=concurrency + 2))
    left = jobs
    done = asyncio.Event()

    @app.task(queue="bench")
    async def noop(data: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for first in range(0, jobs, 1000):
            await noop.batch_defer_async(*({"data": data} for _ in range(min(1000, jobs - first))))
        began, cpu = time.perf_counter(), time.process_time()
        running = asyncio.create_task(
            app.run_worker_async(concurrency=concurrency, delete_jobs="always", install_signal_handlers=False)
        )
        await done.wait()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        running.cancel()
        await asyncio.wait([running], timeout=10)
    print(json.dumps({"version": version("procrastinate"), "rate": jobs / seconds, "cpu": cpu / jobs * 1e6}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
