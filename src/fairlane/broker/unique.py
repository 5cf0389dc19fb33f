"""Unique pushes: a message is not stored while another one with the same key is waiting, or waiting or running.

They need an answer from the store, so they never become operations and never go to the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.push import Announcer
from fairlane.broker.transact import Transactor
from fairlane.errors import FairlaneError, StoreUnavailable, TransactionRefused
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome


class UniquePusher:
    """Pushes the unique messages of a request in one transaction."""

    def __init__(self, tenant: str, transactor: Transactor, announcer: Announcer, write_router: WriteRouter) -> None:
        self._tenant = tenant
        self._transactor = transactor
        self._announcer = announcer
        self._write_router = write_router

    async def push(self, items: Sequence[PushItem]) -> list[PushOutcome]:
        """Push items. Returns one outcome each: `duplicate` with the ids of the message that excludes one.

        Raises Unavailable if the store does not answer, or if earlier messages of a partition are not stored yet.
        """
        if not self._write_router.health.up:
            raise StoreUnavailable(
                "the store does not answer, so nobody knows if another message has this unique key; try again, or push "
                "it without unique"
            )
        self._write_router.check(self._tenant, items)
        try:
            outcomes = await self._transactor.transact(self._tenant, items)
        except TransactionRefused as refusal:
            if len(items) == 1:
                error = refusal.__cause__ if isinstance(refusal.__cause__, FairlaneError) else refusal
                return [PushOutcome("refused", items[0].transaction_id or "", error=error)]
            return [outcome for item in items for outcome in await self.push([item])]
        self._announcer.wake_polls()
        return cast("list[PushOutcome]", outcomes)
