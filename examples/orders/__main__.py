"""A tour of the order service: `python -m examples.orders`. It starts and stops its own PostgreSQL server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from fairlane.store.postgres.embedded import EmbeddedPostgres


@contextmanager
def broker() -> Iterator[None]:
    """Run a PostgreSQL server and a broker on it, and name both in the environment."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres(Path(directory), connections=50) as server:
        command = [Path(sys.executable).with_name("fairlane"), "serve", "--port", "0", "--store", server.url]
        with subprocess.Popen([*command, "--data-dir", directory], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            found = next(filter(None, (re.search(r"http://[0-9.:]+", line) for line in process.stderr)))
            os.environ |= {"DATABASE_URL": server.url, "FAIRLANE_SERVER": found[0]}
            try:
                yield
            finally:
                process.terminate()
                process.communicate()


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """Run the web application on a free port, and yield its URL."""
    from examples.orders.app import web

    server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="warning"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await running


async def ask(method: str, url: str, body: Any = None) -> Any:
    """Send a request as a browser would, and return the answer, or the status of an error."""

    def send() -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code

    return await asyncio.to_thread(send)


async def tour() -> None:
    from examples.orders.app import client, labels

    async with site() as url:
        order = await ask("POST", f"{url}/orders", {"customer": "Ada", "items": 3})
        refused = await ask("POST", f"{url}/orders", {"customer": "Bob", "items": 101})
        await client.result("receipts", f"receipt {order}", timeout=30)
        sales = await ask("POST", f"{url}/reports", ["Ada", "Bob"])
        print(f"sales: {sales}; the order of Bob was refused with {refused}")

        await client.push("parcels", {"order": order, "items": 500}, transaction_id=f"parcel {order}")
        while (await client.results.get("parcels", f"parcel {order}")).status == "pending":
            await asyncio.sleep(0.05)
        print("the parcel was cancelled while it was", await ask("DELETE", f"{url}/orders/{order}/parcel"))

        for number in range(10):
            await client.push("labels", number)
        while len(labels) < 10:
            await asyncio.sleep(0.05)
        print(f"10 labels took {labels[-1] - labels[0]:.1f} s at 5 per second")

        await client.push("invoices", {"name": "Ada"})
        while not (letters := await client.dead_letters.page("invoices")):
            await asyncio.sleep(0.05)
        [failed] = (await client.dead_letters.get("invoices", letters[0].id)).errors
        print(f"the invoice failed: {failed.error}\n{failed.traceback}")


if __name__ == "__main__":
    with broker():
        asyncio.run(tour())
