"""The forwarder: appends dead letters to the queues that are named for them. Every broker runs it, without a leader."""

from __future__ import annotations

import logging
import random

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.push import Announcer
from fairlane.errors import FairlaneError, InvalidRequest, ShuttingDown
from fairlane.model.queue import QueueOptions
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store

_STEP = 100
"""Letters appended in one transaction: each holds a whole message."""
_FLOOR_SECONDS = 2.0
"""Longest pause between checks, because another broker may have died after dead-lettering messages."""
_CHAIN_MAX = 16

log = logging.getLogger(__name__)


class Forwarder(Service):
    """The forwarder of dead letters."""

    def __init__(self, store: Store, catalogue: Catalogue, announcer: Announcer) -> None:
        super().__init__("forwarder")
        self._store = store
        self._catalogue = catalogue
        self._announcer = announcer

    async def _run(self) -> None:
        away = False
        while not self._stopping:
            await self._rest(_FLOOR_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311  # not all at once
            try:
                while not self._stopping and await self.forward():
                    pass
                away = False
            except ShuttingDown:
                return
            except FairlaneError as error:
                if not away:
                    log.warning("cannot forward dead letters, retrying: %(error)s", {"error": error})
                away = True

    async def forward(self) -> int:
        """Forward some letters. Returns their number."""
        forwarded = await self._store.dead_letters.forward(limit=_STEP, allow=self._catalogue.allow)
        for queue_id, count in forwarded.queues.items():
            self._announcer.appended(queue_id, count)
        return sum(forwarded.queues.values())

    async def prepare(self, tenant: str, queue: str, options: QueueOptions) -> None:
        """Create the queue that these options name for dead letters, if it is missing.

        Raises InvalidRequest if letters could return to `queue` through a chain of dead letter queues.
        """
        target = options.dead_letter_queue
        if not isinstance(target, str):
            return
        name: str | bool = target
        for _ in range(_CHAIN_MAX):
            if name == queue:
                raise InvalidRequest(
                    f"dead_letter_queue {target!r:.80} leads back to {queue!r:.80}: a message that always fails would "
                    "go round for ever"
                )
            found = await self._store.queues.get(tenant, name) if isinstance(name, str) else None
            if found is None:
                break
            name = found.options.dead_letter_queue
        else:
            raise InvalidRequest(f"dead_letter_queue {target!r:.80} begins a chain of more than {_CHAIN_MAX} queues")
        wanted = QueueOptions(encryption_enabled=options.encryption_enabled, cell=options.cell)
        await self._store.queues.ensure(tenant, target, wanted, beside=queue)
