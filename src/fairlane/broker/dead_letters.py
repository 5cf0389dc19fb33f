"""Dead letters: listed, replayed, purged."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from collections.abc import Callable

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.errors import InvalidRequest
from fairlane.model.limits import COUNT_MAX
from fairlane.model.names import check_count, check_name
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import DeadFilter

_ANY = DeadFilter()


class DeadLetters:
    def __init__(
        self,
        store: Store,
        tenant: str,
        catalogue: Catalogue,
        announce: Callable[[int, int], None],
        operation_drain: OperationDrain,
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._catalogue = catalogue
        self._announce = announce
        self._operation_drain = operation_drain

    async def list(
        self,
        queue: str,
        where: DeadFilter = _ANY,
        *,
        limit: int = 100,
    ) -> List[DeadLetter]:
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self._store.dead_letters.list((await self._queue(queue)).id, _filter(where), limit=limit)

    async def replay(self, queue: str, where: DeadFilter = _ANY) -> List[tuple[str, str]]:
        """Push dead letters again; (dead letter, new message) ids. A dead letter is replayed once."""
        found = await self._queue(queue)
        replayed = await self._store.dead_letters.replay(found.id, _filter(where))
        self._announce(found.id, len(replayed))
        self._operation_drain.enqueued(0)  # some may be operations
        return replayed

    async def purge(self, queue: str, where: DeadFilter = _ANY) -> int:
        return await self._store.dead_letters.purge((await self._queue(queue)).id, _filter(where))

    async def _queue(self, name: str) -> Queue:
        return await self._catalogue.existing(self._tenant, check_name("queue", name))


def _filter(where: DeadFilter) -> DeadFilter:
    if not isinstance(where, DeadFilter):
        raise InvalidRequest("choose dead letters with a DeadFilter")
    return where.check()
