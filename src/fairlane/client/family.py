"""A family of verbs: the base of all of them."""

from __future__ import annotations

from fairlane.client.transport import Transport
from fairlane.runtime.batcher import BatchPolicy

REQUESTS = BatchPolicy(requests_max=10_000, items_max=10_000, share_items=10_000)
"""One request is in flight at a time, so that calls are carried out in the order they were made. It has at most as
many items as a broker takes."""


class Family:
    """Some verbs of the client. Families are joined to one `Client` and share its transport."""

    def __init__(self, transport: Transport, *, batching: bool) -> None:
        self._transport = transport
        self._batching = batching

    async def _drain(self) -> None:
        """Return when everything that waits to be sent was answered."""
