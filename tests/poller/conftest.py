"""A broker in the process of the test, and pollers of a test API."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlane import App
from fairlane.poller import Poller, Progress, Source
from fairlane.testing import AppTest
from tests.poller.api import Api


class Polling:
    def __init__(self, test: AppTest, api: Api) -> None:
        self.test = test
        self.api = api

    def source(self, path: str = "/id", **more: Any) -> Source:
        fields: dict[str, Any] = {"name": "source", "queue": "events", "page_size": 10, "allow_private": True}
        return Source(url=self.api.url + path, **{**fields, **more})

    def poller(self, path: str = "/id", **more: Any) -> Poller:
        return Poller(self.source(path, **more), self.test.client.sources)

    async def once(self, path: str = "/id", *, sweep: bool = False, **more: Any) -> Progress:
        return await self.poller(path, **more).once(sweep=sweep)

    async def events(self) -> Counter[tuple[str, str]]:
        """Count each event of each record in the queue."""
        return Counter((data["event"], data["key"]) for data in await self.test.pushed("events"))


@pytest.fixture
async def polling() -> AsyncIterator[Polling]:
    async with AppTest(App()) as test, Api(35) as api:
        yield Polling(test, api)
