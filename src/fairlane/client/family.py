"""What the families of verbs have in common."""

from __future__ import annotations

from fairlane.client.transport import Transport


class Family:
    """Some verbs of the client. Families are joined to one `Client` and share its transport."""

    def __init__(self, transport: Transport, *, batching: bool) -> None:
        self._transport = transport
        self._batching = batching

    async def _drain(self) -> None:
        """Return when everything that waits to be sent was answered."""
