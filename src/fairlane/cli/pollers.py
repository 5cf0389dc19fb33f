"""The poller service: runs the pollers of the compiled specs. Every broker does it: the lease of a source says which
one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from fairlane.broker.broker import Broker
from fairlane.cli.poll import source_of
from fairlane.errors import InvalidRequest
from fairlane.outbound.addresses import Allowed
from fairlane.poller.poller import Poller
from fairlane.runtime.service import Service
from fairlane.spec import ir

LOOK_SECONDS = 0.5
STOP_SECONDS = 3.0
"""For giving the leases back; what does not come to it ends by itself."""
_AGAIN_SECONDS = 60.0

log = logging.getLogger("fairlane.poll")


class PollerService(Service):
    """The poller service of a broker. `secrets` gives what environment variables hold that specs may name; `allowed` is
    what may be asked besides the public internet."""

    def __init__(self, broker: Broker, secrets: Callable[[Sequence[str]], Sequence[str]], allowed: Allowed) -> None:
        super().__init__("pollers")
        self._broker = broker
        self._secrets = secrets
        self._allowed = allowed
        self._running: dict[str, tuple[ir.PollerSpec, asyncio.Task[None]]] = {}

    async def stop(self) -> None:
        """What was read and not committed is read again by whoever comes next."""
        try:
            await super().stop()
        finally:
            await self._end(list(self._running))

    async def _run(self) -> None:
        seen: object = None
        while not self._stopping:
            pollers = self._broker.compiled_specs.pollers
            if pollers is not seen:  # they are others whenever a spec was applied
                await self._renew(pollers)
                seen = pollers
            await self._rest(LOOK_SECONDS)

    async def _renew(self, pollers: dict[str, ir.PollerSpec]) -> None:
        """Read what the specs in force say, and no longer what they do not."""
        await self._end([name for name, (declared, _) in self._running.items() if pollers.get(name) != declared])
        for name, declared in pollers.items():
            if name not in self._running:
                polling = asyncio.create_task(self._poll(name, declared), name=f"fairlane poller {name}")
                self._running[name] = (declared, polling)

    async def _end(self, names: list[str]) -> None:
        tasks = [self._running.pop(name)[1] for name in names]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)

    async def _poll(self, name: str, declared: ir.PollerSpec) -> None:
        try:
            source = source_of(name, declared, self._secrets)
        except InvalidRequest as error:
            log.error("cannot run poller %r: %s", name, error)
            return
        while True:
            try:
                await Poller(source, self._broker.sources, allowed=self._allowed).run()
            except Exception:  # whatever a source of somebody else makes it stumble over: the other pollers go on
                log.exception("unexpected error in poller %r; it starts again in %.0f s", name, _AGAIN_SECONDS)
                await asyncio.sleep(_AGAIN_SECONDS)
