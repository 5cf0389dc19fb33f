"""The service that runs the pollers of applied specs.

Every broker has it. The broker that holds the lease of a source polls it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fairlane.broker.broker import Broker
from fairlane.cli.processes.poller_source import source_of
from fairlane.errors import InvalidRequest
from fairlane.outbound.addresses import Allowed
from fairlane.runtime.service import Service
from fairlane.spec import ir

if TYPE_CHECKING:
    from fairlane.poller.poller import Poller

POLL_SECONDS = 0.5
STOP_SECONDS = 3.0
"""Timeout for releasing the leases at shutdown. Leases that are not released expire."""
_RESTART_SECONDS = 60.0

log = logging.getLogger("fairlane.poll")


Key = tuple[str, str]
"""The key of a running poller: its tenant and its name."""


class PollerService(Service):
    """Runs the pollers of a broker.

    `secrets` returns the values of environment variables that specs may read. `allowed` lists the private addresses
    that pollers may call.
    """

    def __init__(self, broker: Broker, secrets: Callable[[Sequence[str]], Sequence[str]], allowed: Allowed) -> None:
        super().__init__("pollers")
        self._broker = broker
        self._secrets = secrets
        self._allowed = allowed
        self._running: dict[Key, tuple[ir.PollerSpec, asyncio.Task[None]]] = {}

    async def stop(self) -> None:
        """Stop all pollers. The next owner reads uncommitted pages again."""
        try:
            await super().stop()
        finally:
            await self._cancel(list(self._running))

    async def _run(self) -> None:
        seen: object = {}
        while not self._stopping:
            pollers = {
                (tenant, name): declared
                for tenant, specs in self._broker.process.specs.items()
                for name, declared in specs.pollers.items()
            }
            if pollers != seen:
                await self._reconcile(pollers)
                seen = pollers
            await self._rest(POLL_SECONDS)

    async def _reconcile(self, pollers: dict[Key, ir.PollerSpec]) -> None:
        """Start and stop pollers to match the applied specs."""
        await self._cancel([key for key, (declared, _) in self._running.items() if pollers.get(key) != declared])
        for key, declared in pollers.items():
            if key not in self._running:
                polling = asyncio.create_task(self._poll(*key, declared), name=f"fairlane poller {key[1]}")
                self._running[key] = (declared, polling)

    async def _cancel(self, keys: list[Key]) -> None:
        tasks = [self._running.pop(key)[1] for key in keys]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)

    async def _poll(self, tenant: str, name: str, declared: ir.PollerSpec) -> None:
        poller = await asyncio.to_thread(_poller)  # in a thread: a slow import that most brokers do not need
        try:
            source = source_of(name, declared, self._secrets)
        except InvalidRequest as error:
            log.error("cannot run poller %(name)r: %(error)s", {"name": name, "error": error})
            return
        while True:
            try:
                await poller(source, self._broker.of(tenant).sources, allowed=self._allowed).run()
            except Exception:  # one bad source must not stop other pollers
                log.exception(
                    "unexpected error in poller %(name)r; restarting it in %(seconds).0f s",
                    {"name": name, "seconds": _RESTART_SECONDS},
                )
                await asyncio.sleep(_RESTART_SECONDS)


def _poller() -> type[Poller]:
    from fairlane.poller.poller import Poller

    return Poller
