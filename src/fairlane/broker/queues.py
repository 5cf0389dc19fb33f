"""Queues: made, configured, listed and deleted."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from typing import Any

import msgspec

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.catalogue_watch import CATALOGUE
from fairlane.broker.forwarder import Forwarder
from fairlane.errors import InvalidRequest, NotFound, OptionsChanged
from fairlane.model.names import check_name
from fairlane.model.queue import Queue, QueueOptions, queue_options
from fairlane.store.contract.store import Store


class Queues:
    def __init__(self, store: Store, tenant: str, catalogue: Catalogue, forwarder: Forwarder) -> None:
        self._store = store
        self._tenant = tenant
        self._catalogue = catalogue
        self._forwarder = forwarder

    async def configure(
        self, queue: str, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> Queue:
        """Make a queue or replace its options; what is not named goes back to its default."""
        check_name("queue", queue)
        for label, given in (("namespace", namespace), ("task", task)):
            if given:
                check_name(label, given)
            elif given is not None and not isinstance(given, str):
                raise InvalidRequest(f"{label} must be a string, not {type(given).__name__}")
        return await self._configure(queue, queue_options(**options), namespace or "", task or "")

    async def _configure(
        self, queue: str, options: QueueOptions, namespace: str, task: str, before: QueueOptions | None = None
    ) -> Queue:
        await self._forwarder.prepare(self._tenant, queue, options)
        configured = await self._store.queues.configure(
            self._tenant, queue, options, namespace=namespace, task=task, before=before
        )
        self._catalogue.forget(configured.id)
        self._catalogue.remember(configured)
        self._store.hint(CATALOGUE)
        return configured

    async def set_options(self, queue: str, **options: Any) -> Queue:
        """Change some options of a queue; the others stay as they are. NotFound if there is none."""
        while True:
            there = await self._store.queues.get(self._tenant, check_name("queue", queue))
            if there is None:
                raise NotFound(f"there is no queue {queue!r}")
            changed = queue_options(**msgspec.structs.asdict(there.options) | options)
            try:
                return await self._configure(queue, changed, there.namespace, there.task, before=there.options)
            except OptionsChanged:
                continue  # somebody else changed some meanwhile, and theirs stay too

    async def list(self) -> List[Queue]:
        return await self._store.queues.list(self._tenant)

    async def delete(self, queue: str) -> bool:
        known = await self._store.queues.get(self._tenant, check_name("queue", queue))
        deleted = await self._store.queues.delete(self._tenant, queue)
        if known is not None:
            self._catalogue.forget(known.id)
        self._store.hint(CATALOGUE)
        return deleted

    async def depth(self, queue: str) -> int:
        return await self._store.queues.depth(
            (await self._catalogue.existing(self._tenant, check_name("queue", queue))).id
        )
