"""Webhooks: those in force, what came to them, and a sample to try one."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.model.names import check_name
from fairlane.wire.hooks import Hook, HookList, HookTest


class Hooks(Part):
    async def list(self) -> List[Hook]:
        """Those in force, by name."""
        return (await self._ask(HookList, "GET", "hooks")).hooks

    async def test(self, name: str) -> HookTest:
        """Send a webhook a signed sample, and tell what its sender would be answered. Raises NotFound."""
        return await self._ask(HookTest, "POST", "hooks", check_name("webhook", name), "test")
