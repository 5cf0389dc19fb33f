"""The command service: runs the commands of compiled specs that need no worker.

Every broker runs it, without a leader.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from fairlane.broker.broker import Broker
from fairlane.commands.executors import Executors
from fairlane.commands.handling import CommandHandling, ExecutorHandling, ForwardHandling
from fairlane.errors import CommandFailed
from fairlane.runtime.consumer import Consumer
from fairlane.runtime.service import Service
from fairlane.spec import ir
from fairlane.spec.compiled_queue import CompiledQueue

REFRESH_SECONDS = 0.5
GRACE_SECONDS = 3.0
"""Seconds to finish running commands at shutdown. A stopping broker has little more for everything."""

log = logging.getLogger(__name__)


Key = tuple[str, str]
"""Tenant and queue."""


class MappedQueue(NamedTuple):
    """A queue whose messages become a command that is declared with `run`."""

    compiled: CompiledQueue
    command: str
    declared: ir.CommandSpec


class CommandService(Service):
    def __init__(self, broker: Broker, executors: Executors) -> None:
        super().__init__("commands")
        self._broker = broker
        self._executors = executors
        self._consumers: dict[Key, tuple[MappedQueue, Consumer]] = {}
        self._without_secret: dict[Key, MappedQueue] = {}
        """Mapped queues whose signing secret is missing. Applying a spec that names it makes a new MappedQueue."""
        self._seen: list[object] = []

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop taking messages and wait for running commands."""
        try:
            await super().stop()
        finally:
            await self._stop_consumers(list(self._consumers), grace_seconds)

    async def _run(self) -> None:
        while not self._stopping:
            queues: list[object] = [specs.queues for _, specs in self._broker.process.specs.items() if specs.queues]
            if [*map(id, queues)] != [*map(id, self._seen)]:  # a new spec replaces these objects
                await self.refresh()
                self._seen = queues
            await self._rest(REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Start and stop consumers to match the specs in force."""
        wanted = self._mapped_queues()
        gone = [key for key, (mapped, _) in self._consumers.items() if wanted.get(key) != mapped]
        await self._stop_consumers(gone, GRACE_SECONDS)
        for key, mapped in wanted.items():
            if key not in self._consumers and self._without_secret.get(key) != mapped:
                await self._start_consumer(key, mapped)

    async def _stop_consumers(self, keys: list[Key], grace_seconds: float) -> None:
        ending = [self._consumers.pop(key)[1] for key in keys]
        await asyncio.gather(*(consumer.end(grace_seconds=grace_seconds) for consumer in ending))

    async def _start_consumer(self, key: Key, mapped: MappedQueue) -> None:
        tenant, queue = key
        broker = self._broker.of(tenant)
        try:
            handling = await self._handling(broker, mapped)
        except CommandFailed as error:
            self._without_secret[key] = mapped
            log.error(
                "cannot run command %(command)s for queue %(queue)r: %(error)s",
                {"queue": queue, "command": mapped.command, "error": error},
            )
            return
        consumer = handling.consumer(broker, queue)
        self._consumers[key] = (mapped, consumer)
        consumer.start()

    def _mapped_queues(self) -> dict[Key, MappedQueue]:
        found: dict[Key, MappedQueue] = {}
        for tenant, specs in self._broker.process.specs.items():
            for queue, compiled in specs.queues.items():
                declared = specs.commands.get(compiled.mapping.command) if compiled.mapping else None
                if compiled.mapping is not None and declared is not None and declared.run is not None:
                    found[tenant, queue] = MappedQueue(compiled, compiled.mapping.command, declared)
        return found

    async def _handling(self, broker: Broker, mapped: MappedQueue) -> CommandHandling:
        counts = self._broker.process.telemetry.command(mapped.command)
        run = mapped.declared.run
        if isinstance(run, ir.QueueRun):
            return ForwardHandling(broker, mapped.compiled, run.queue, counts)
        return ExecutorHandling(broker, mapped.compiled, await self._executors.of(broker, mapped.declared), counts)
