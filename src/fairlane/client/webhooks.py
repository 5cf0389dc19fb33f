"""Webhooks: list those in force, and test one with a sample."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.model.names import check_name
from fairlane.wire.webhooks import WebhookList, WebhookSummary, WebhookTest


class Webhooks(ClientResource):
    async def all(self) -> list[WebhookSummary]:
        """Return the webhooks in force, by name."""
        return (await self._call(WebhookList, "GET", "hooks")).hooks

    async def test(self, name: str) -> WebhookTest:
        """Send a signed sample to a webhook and return the answer that its sender would get. Raises NotFound."""
        return await self._call(WebhookTest, "POST", "hooks", check_name("webhook", name), "test")
