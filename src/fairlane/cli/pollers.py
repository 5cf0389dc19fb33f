"""The poller service: runs the pollers of the compiled specs. Every broker does it: the lease of a source says which
one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fairlane.broker.broker import Broker
from fairlane.cli.poll import source_of
from fairlane.errors import InvalidRequest
from fairlane.outbound.addresses import Allowed
from fairlane.runtime.service import Service
from fairlane.spec import ir

if TYPE_CHECKING:
    from fairlane.poller.poller import Poller

LOOK_SECONDS = 0.5
STOP_SECONDS = 3.0
"""For giving the leases back; what does not come to it ends by itself."""
_AGAIN_SECONDS = 60.0

log = logging.getLogger("fairlane.poll")


Key = tuple[str, str]
"""Tenant and poller."""


class PollerService(Service):
    """The poller service of a broker. `secrets` gives what environment variables hold that specs may name; `allowed` is
    what may be asked besides the public internet."""

    def __init__(self, broker: Broker, secrets: Callable[[Sequence[str]], Sequence[str]], allowed: Allowed) -> None:
        super().__init__("pollers")
        self._broker = broker
        self._secrets = secrets
        self._allowed = allowed
        self._running: dict[Key, tuple[ir.PollerSpec, asyncio.Task[None]]] = {}

    async def stop(self) -> None:
        """What was read and not committed is read again by whoever comes next."""
        try:
            await super().stop()
        finally:
            await self._end(list(self._running))

    async def _run(self) -> None:
        seen: object = {}
        while not self._stopping:
            pollers = {
                (tenant, name): declared
                for tenant, specs in self._broker.all_specs.items()
                for name, declared in specs.pollers.items()
            }
            if pollers != seen:
                await self._renew(pollers)
                seen = pollers
            await self._rest(LOOK_SECONDS)

    async def _renew(self, pollers: dict[Key, ir.PollerSpec]) -> None:
        """Read what the specs in force say, and no longer what they do not."""
        await self._end([key for key, (declared, _) in self._running.items() if pollers.get(key) != declared])
        for key, declared in pollers.items():
            if key not in self._running:
                polling = asyncio.create_task(self._poll(*key, declared), name=f"fairlane poller {key[1]}")
                self._running[key] = (declared, polling)

    async def _end(self, keys: list[Key]) -> None:
        tasks = [self._running.pop(key)[1] for key in keys]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)

    async def _poll(self, tenant: str, name: str, declared: ir.PollerSpec) -> None:
        poller = await asyncio.to_thread(_poller)  # beside the loop: it is much to import, and most brokers have none
        try:
            source = source_of(name, declared, self._secrets)
        except InvalidRequest as error:
            log.error("cannot run poller %(name)r: %(error)s", {"name": name, "error": error})
            return
        while True:
            try:
                await poller(source, self._broker.of(tenant).sources, allowed=self._allowed).run()
            except Exception:  # whatever a source of somebody else makes it stumble over: the other pollers go on
                log.exception(
                    "unexpected error in poller %(name)r; it starts again in %(seconds).0f s",
                    {"name": name, "seconds": _AGAIN_SECONDS},
                )
                await asyncio.sleep(_AGAIN_SECONDS)


def _poller() -> type[Poller]:
    from fairlane.poller.poller import Poller

    return Poller
