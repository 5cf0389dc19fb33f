"""A background service continues after any error and logs it."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.runtime import service
from fairlane.runtime.service import Service


class Counting(Service):
    """A service that fails in its first runs."""

    def __init__(self, failing: int) -> None:
        super().__init__("counting")
        self.turns = 0
        self.went_on = asyncio.Event()
        self._failing = failing

    async def _run(self) -> None:
        while not self._stopping:
            self.turns += 1
            if self.turns <= self._failing:
                raise ZeroDivisionError("nobody foresaw this")
            self.went_on.set()
            await self._rest(60)


async def test_a_service_that_failed_begins_again_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "AGAIN_SECONDS", 0.01)
    counting = Counting(failing=2)
    counting.start()
    async with asyncio.timeout(60):
        await counting.went_on.wait()
    assert caplog.text.count("unexpected error in counting; it starts again in") == 2
    assert "ZeroDivisionError" in caplog.text
    await counting.stop()  # it continued, and it stops like any other


async def test_news_do_not_hurry_a_service_that_failed_but_a_stop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "AGAIN_SECONDS", 3600.0)
    counting = Counting(failing=100)
    counting.start()
    for _ in range(10):
        counting.wake()
        await asyncio.sleep(0.005)
    assert counting.turns == 1
    with pytest.raises(ZeroDivisionError):
        await counting.stop()


async def test_a_service_ends_when_it_is_asked_to() -> None:
    counting = Counting(failing=0)
    counting.start()
    await counting.went_on.wait()
    await counting.stop()
    assert counting.turns in (1, 2)
