"""The command service: carries out the commands of the compiled specs that need no worker. Every broker does it, and
none leads."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from fairlane.broker.broker import Broker
from fairlane.commands.executors import Executors
from fairlane.commands.handling import Calls, Chaining, Commands
from fairlane.errors import CommandFailed
from fairlane.runtime.consumer import Consumer
from fairlane.runtime.service import Service
from fairlane.spec import ir
from fairlane.spec.compiled_queue import CompiledQueue

LOOK_SECONDS = 0.5
GRACE_SECONDS = 3.0
"""For what is under way when it stops. A broker that stops has little more for everything."""

log = logging.getLogger(__name__)


Key = tuple[str, str]
"""Tenant and queue."""


class Mapped(NamedTuple):
    """A queue whose messages become a command that is declared with `run`."""

    compiled: CompiledQueue
    command: str
    declared: ir.CommandSpec


class CommandService(Service):
    def __init__(self, broker: Broker, executors: Executors) -> None:
        super().__init__("commands")
        self._broker = broker
        self._executors = executors
        self._consumers: dict[Key, tuple[Mapped, Consumer]] = {}
        self._unable: dict[Key, Mapped] = {}
        """Those whose secret is missing; an apply that brings it makes them others."""
        self._seen: list[object] = []

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Begin nothing new, and let what is under way end."""
        try:
            await super().stop()
        finally:
            await self._end(list(self._consumers), grace_seconds)

    async def _run(self) -> None:
        while not self._stopping:
            queues: list[object] = [specs.queues for _, specs in self._broker.all_specs.items() if specs.queues]
            if [*map(id, queues)] != [*map(id, self._seen)]:  # they are others whenever a spec was applied
                await self.renew()
                self._seen = queues
            await self._rest(LOOK_SECONDS)

    async def renew(self) -> None:
        """Run what the specs in force say, and no longer what they do not."""
        wanted = self._wanted()
        gone = [key for key, (mapped, _) in self._consumers.items() if wanted.get(key) != mapped]
        await self._end(gone, GRACE_SECONDS)
        for key, mapped in wanted.items():
            if key not in self._consumers and self._unable.get(key) != mapped:
                await self._begin(key, mapped)

    async def _end(self, keys: list[Key], grace_seconds: float) -> None:
        ending = [self._consumers.pop(key)[1] for key in keys]
        await asyncio.gather(*(consumer.end(grace_seconds=grace_seconds) for consumer in ending))

    async def _begin(self, key: Key, mapped: Mapped) -> None:
        tenant, queue = key
        broker = self._broker.of(tenant)
        try:
            handling = await self._handling(broker, mapped)
        except CommandFailed as error:
            self._unable[key] = mapped
            log.error(
                "cannot run commands of queue %(queue)r, %(command)s cannot be carried out: %(error)s",
                {"queue": queue, "command": mapped.command, "error": error},
            )
            return
        consumer = handling.consumer(broker, queue)
        self._consumers[key] = (mapped, consumer)
        consumer.start()

    def _wanted(self) -> dict[Key, Mapped]:
        found: dict[Key, Mapped] = {}
        for tenant, specs in self._broker.all_specs.items():
            for queue, compiled in specs.queues.items():
                declared = specs.commands.get(compiled.mapping.command) if compiled.mapping else None
                if compiled.mapping is not None and declared is not None and declared.run is not None:
                    found[tenant, queue] = Mapped(compiled, compiled.mapping.command, declared)
        return found

    async def _handling(self, broker: Broker, mapped: Mapped) -> Commands:
        counts = self._broker.telemetry.command(mapped.command)
        run = mapped.declared.run
        if isinstance(run, ir.QueueRun):
            return Chaining(broker, mapped.compiled, run.queue, counts)
        return Calls(broker, mapped.compiled, await self._executors.of(broker, mapped.declared), counts)
