"""The faults of a history, chosen at random, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import asyncpg

from tests.broker_process import BrokerProcess
from tests.faults.outages import frozen, revive
from tests.history.preloaded import Faults
from tests.postgres import PostgresServer

STEPS_SECONDS = (-600, -60, -5, 5, 60, 600)


class Nemesis:
    """Breaks brokers and the store, and mends them."""

    def __init__(
        self,
        random: Random,
        brokers: Sequence[BrokerProcess],
        broker_faults: Sequence[Faults],
        server: PostgresServer | None,
        server_faults: Faults | None,
    ) -> None:
        self._random = random
        self._brokers = brokers
        self._broker_faults = broker_faults
        self._server = server
        self._server_faults = server_faults
        self.made: Counter[str] = Counter()
        """Number of times each fault was injected."""

    async def run(self, seconds: float) -> None:
        """Make faults for `seconds`, then mend everything."""
        ends_at = time.monotonic() + seconds
        faults: list[Callable[[], Awaitable[None]]] = [
            self.kill_broker,
            self.stop_broker,
            self.freeze_broker,
            self.fill_disk_of_broker,
            self.step_clock_of_broker,
        ]
        if self._server is not None:
            faults += [
                self.terminate_backends,
                self.freeze_server,
                self.crash_server,
                self.fill_disk_of_server,
                self.step_clock_of_server,
            ]
        # Each fault comes once in every round, so that a short run makes all of them.
        while time.monotonic() < ends_at:
            self._random.shuffle(faults)
            for fault in faults:
                if time.monotonic() > ends_at:
                    break
                await asyncio.sleep(self._random.uniform(0.2, 2.5))
                name = getattr(fault, "__name__", "")
                self.made[name] += 1
                print(f"{ends_at - time.monotonic():6.1f} s left: {name}", flush=True)
                await fault()
        await self._mend()

    async def _last(self, most: float = 5.0) -> None:
        """Wait for a random time while a fault lasts, up to `most` seconds."""
        await asyncio.sleep(self._random.uniform(0.2, most))

    def _broker(self) -> int:
        return self._random.randrange(len(self._brokers))

    async def kill_broker(self) -> None:
        broker = self._brokers[self._broker()]
        await asyncio.to_thread(broker.kill)
        await self._last(2.0)
        await asyncio.to_thread(broker.start)

    async def stop_broker(self) -> None:
        broker = self._brokers[self._broker()]
        await asyncio.to_thread(broker.stop)
        await self._last(2.0)
        await asyncio.to_thread(broker.start)

    async def freeze_broker(self) -> None:
        broker = self._brokers[self._broker()]
        os.kill(broker.pid, signal.SIGSTOP)
        await self._last()
        os.kill(broker.pid, signal.SIGCONT)

    async def fill_disk_of_broker(self) -> None:
        """Fill the disk of the journal, and of the store if that is a file."""
        faults = self._broker_faults[self._broker()]
        faults.fill_disk(True)
        await self._last()
        faults.fill_disk(False)

    async def step_clock_of_broker(self) -> None:
        faults = self._broker_faults[self._broker()]
        faults.step_clock(self._random.choice(STEPS_SECONDS))
        await self._last()
        faults.step_clock(0)

    async def terminate_backends(self) -> None:
        assert self._server is not None
        async with self._server.connect() as connection:
            await connection.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"""
            )

    async def freeze_server(self) -> None:
        assert self._server is not None
        with frozen(self._server):
            await self._last()

    async def crash_server(self) -> None:
        assert self._server is not None
        await asyncio.to_thread(self._server.stop, signal.SIGQUIT)
        await self._last()
        await revive(self._server)

    async def fill_disk_of_server(self) -> None:
        """Fill the disk of the server, which may panic and stay down until somebody starts it."""
        assert self._server is not None
        assert self._server_faults is not None
        self._server_faults.fill_disk(True)
        await self._last()
        self._server_faults.fill_disk(False)
        await self._revive_if_down()

    async def step_clock_of_server(self) -> None:
        assert self._server_faults is not None
        self._server_faults.step_clock(self._random.choice(STEPS_SECONDS))
        await self._last()
        self._server_faults.step_clock(0)

    async def _mend(self) -> None:
        for faults in (*self._broker_faults, self._server_faults):
            if faults is not None:
                faults.heal()
        for broker in self._brokers:
            if not broker.running:
                await asyncio.to_thread(broker.start)
        await self._revive_if_down()

    async def _revive_if_down(self) -> None:
        """Wait until the server takes connections again, and start it if it ended."""
        if self._server is None:
            return
        while True:
            if self._server.process.poll() is not None:
                await revive(self._server)
            with contextlib.suppress(OSError, asyncpg.PostgresError):
                async with self._server.connect() as connection:
                    await connection.fetchval("SELECT 1")
                return
            await asyncio.sleep(0.1)
