"""The whole shop in one program: `python -m examples.shop`. It ends when all orders are done, or on Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from examples.shop import app as shop
from examples.shop.outside import Outside
from fairlane import Client
from fairlane.poller import Source, poll
from fairlane.worker import Worker


@contextlib.asynccontextmanager
async def broker() -> AsyncIterator[str]:
    """Run a broker on a temporary SQLite file. Yields its URL."""
    with tempfile.TemporaryDirectory() as directory:
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("fairlane"),
            *("serve", "--port", "0", "--store", f"sqlite:///{directory}/shop.db", "--data-dir", directory),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            while " on http://" not in (line := (await process.stderr.readline()).decode()):
                if not line:
                    raise RuntimeError("the broker did not start")
            rest = asyncio.create_task(process.stderr.read())
            yield line.partition(" on ")[2].partition(",")[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
        await rest


@contextlib.asynccontextmanager
async def working(url: str) -> AsyncIterator[None]:
    """Run a worker during the block. A failure of the worker ends the block."""
    worker = Worker(shop.app, url)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        yield
        worker.stop()


@contextlib.asynccontextmanager
async def polling(outside: Outside, url: str) -> AsyncIterator[None]:
    """Poll for new prices every second, and compare all of them every two seconds to find changes and deletions."""
    prices = Source(
        name="prices",
        url=f"{outside.url}/prices",
        queue="prices",
        items="prices",
        page_size=10,
        every_seconds=1,
        sweep_seconds=2,
        allow_private=True,  # the supplier is on this machine
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(poll(prices, url))
        yield
        running.cancel()


async def main(orders: int) -> int:
    async with Outside() as outside, broker() as url, Client(url) as client:
        shop.PAYMENTS = outside.url
        await client.queues.configure("orders", retry_delay_ms=200)
        await client.queues.configure("mails", retry_delay_ms=200)
        print(f"broker at {url}; {orders} orders come in")
        for number in range(1, orders + 1):
            customer = "nobody" if number % 20 == 0 else f"customer-{number % 5}@example.com"
            order = {"id": number, "customer": customer, "cents": 1000 + number}
            await client.push("orders", order, partition=customer, transaction_id=f"order-{number}")
        async with working(url), polling(outside, url):
            while len(shop.books.prices) < 25:
                await asyncio.sleep(0.05)
            outside.prices[3] = 1
            del outside.prices[4]
            while not await done(client, orders):
                await asyncio.sleep(0.1)
        return await report(client, outside, orders)


async def done(client: Client, orders: int) -> bool:
    books = shop.books
    dead = len(await client.dead_letters.page("mails"))
    prices = books.prices.get("3") == 1 and "4" not in books.prices
    return len(books.mails) + dead == orders and prices and books.reports > 0


async def report(client: Client, outside: Outside, orders: int) -> int:
    """Print the result. Returns the exit code: 0 if each customer was charged once."""
    books = shop.books
    dead = await client.dead_letters.page("mails")
    for letter in dead:
        print(f"dead letter: {letter.error}")
    print(
        f"{orders} orders: {len(outside.orders)} charges, {len(books.mails)} mails sent, {len(dead)} undeliverable, "
        f"{len(books.prices)} prices, {books.reports} reports; {books.failed_attempts} attempts failed on the way"
    )
    once = sorted(outside.orders) == list(range(1, orders + 1)) and len(set(books.mails)) == len(books.mails)
    print("each customer was charged once" if once else "SOMETHING IS WRONG")
    return 0 if once else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__)
    parser.add_argument("--orders", type=int, default=60)
    logging.getLogger("fairlane.worker").setLevel(logging.ERROR)  # the app prints failures itself
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(main(parser.parse_args().orders)))
