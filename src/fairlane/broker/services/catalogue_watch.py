"""The catalogue watch: notices changes of queues, specs and keys by other brokers, and refreshes the caches.

A version in the store is authoritative. A hint announces a change, and the version is also polled twice a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.compiled_specs import AllSpecs
from fairlane.broker.credentials import Credentials
from fairlane.broker.tenants import Tenants
from fairlane.errors import FairlaneError
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store
from fairlane.store.families.queues import KEYS, SPECS, TENANTS

LOOK_SECONDS = 0.5
SILENT_SECONDS = 2.0
"""A poll of the catalogue that takes longer than this triggers a health check of the store."""

log = logging.getLogger(__name__)


class CatalogueWatch(Service):
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        tenants: Tenants,
        specs: AllSpecs,
        credentials: Credentials,
        trouble: Callable[[str], Awaitable[object]],
    ) -> None:
        """Create the watch. It calls `trouble` with every store error, so that an idle broker notices an outage."""
        super().__init__("catalogue")
        self._store = store
        self._catalogue = catalogue
        self._tenants = tenants
        self._specs = specs
        self._credentials = credentials
        self._trouble = trouble
        self._version: int | None = None

    async def _run(self) -> None:
        while not self._stopping:
            looking = asyncio.create_task(self.refresh(), name="fairlane catalogue look")
            while not (await asyncio.wait({looking}, timeout=SILENT_SECONDS))[0]:
                await self._trouble("the catalogue could not be read in time")
            try:
                looking.result()
            except FairlaneError as error:
                await self._trouble(str(error))
                log.debug("cannot read the catalogue: %(error)s", {"error": error})
            await self._credentials.refresh()
            await self._rest(LOOK_SECONDS)

    async def refresh(self) -> None:
        """Drop what changed since the last check, or everything if that is not known."""
        version, queue_ids = await self._store.queues.changes(self._version or 0)
        if self._version is None or queue_ids is None:
            self._catalogue.forget_all()
            await self._tenants.reload()
            await self._specs.reload()
            await self._credentials.reload()
        else:
            for queue_id in queue_ids:
                if queue_id == SPECS:
                    await self._specs.reload()
                elif queue_id == KEYS:
                    await self._credentials.reload()
                elif queue_id == TENANTS:
                    await self._tenants.reload()
                else:
                    self._catalogue.forget(queue_id)
        self._version = version
