"""The timeout of the store.

One slow flush may use the whole timeout. A silent store gets a health check after a quarter of it, and calls continue
to wait while it answers.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from fairlane.broker.deferral.store_health import StoreHealth
from fairlane.broker.deferral.store_timeout import StoreTimeout
from fairlane.errors import StoreUnavailable
from fairlane.store.contract.journal import Backlog

TIMEOUT = 1.2
BACKLOG = Backlog("push", "t", "q", "a")


class Store:
    """A store that answers health checks, unless it is `frozen` or `refuses`."""

    def __init__(self, *, frozen: bool = False, refuses: bool = False) -> None:
        self.asked = 0
        self._frozen = frozen
        self._refuses = refuses
        self.health = StoreHealth(self)  # type: ignore[arg-type]

    async def check_health(self) -> None:
        self.asked += 1
        if self._refuses:
            raise StoreUnavailable("no")
        if self._frozen:
            await asyncio.Event().wait()


def backlogs() -> frozenset[Backlog]:
    return frozenset([BACKLOG])


async def answers(store_timeout: StoreTimeout, *, times: int = 40) -> None:
    """A store that was fast so far."""
    for _ in range(times):
        assert await store_timeout.wait_for(asyncio.sleep(0), may_abandon=lambda: True, backlogs=backlogs)


async def waited(store_timeout: StoreTimeout, seconds: float, *, may_abandon: bool = True) -> tuple[bool, float]:
    """Run work of this many seconds. Returns True if it was waited for, and the time waited."""
    began = monotonic()
    return (
        await store_timeout.wait_for(asyncio.sleep(seconds), may_abandon=lambda: may_abandon, backlogs=backlogs)
        is not None,
        monotonic() - began,
    )


async def left(store_timeout: StoreTimeout) -> None:
    while store_timeout.abandoned:
        await asyncio.wait(set(store_timeout.abandoned))


async def test_a_silent_store_is_asked_after_a_quarter_of_the_patience_and_given_up_if_it_does_not_answer() -> None:
    store = Store(frozen=True)
    store_timeout = StoreTimeout(store.health, TIMEOUT)
    await answers(store_timeout)
    began, end = monotonic(), asyncio.Event()
    assert await store_timeout.wait_for(end.wait(), may_abandon=lambda: True, backlogs=backlogs) is None
    assert monotonic() - began >= TIMEOUT / 2
    assert (store.asked, store.health.up, store.health.outages) == (1, False, 1)
    assert store_timeout.abandoned_backlogs() == {BACKLOG}, "what nobody waits for goes on"
    end.set()
    await left(store_timeout)
    assert store_timeout.abandoned_backlogs() == set()
    await store.health.stop()


async def test_a_silent_store_that_answers_has_the_whole_patience_for_each_flush() -> None:
    store = Store()
    store_timeout = StoreTimeout(store.health, TIMEOUT)
    await answers(store_timeout)
    assert (await waited(store_timeout, 0.8))[0]
    await answers(store_timeout)
    done, seconds = await waited(store_timeout, 1.5)
    assert not done
    assert seconds >= TIMEOUT
    assert (store.asked > 1, store.health.up, store.health.outages) == (True, True, 0), "one flush is no outage"
    await left(store_timeout)


async def test_a_store_that_refuses_is_given_up_at_once_when_asked_and_is_back_when_it_answers() -> None:
    store = Store(refuses=True)
    assert not await store.health.check("a push failed", 10.0)
    assert not store.health.up
    store._refuses = False
    assert await store.health.wait_available(60.0)
    assert store.health.up
    await store.health.stop()


async def test_work_that_could_not_go_to_the_journal_has_the_whole_patience() -> None:
    store_timeout = StoreTimeout(Store(frozen=True).health, TIMEOUT)
    await answers(store_timeout)
    assert (await waited(store_timeout, 0.6, may_abandon=False))[0]


async def test_a_store_that_was_not_seen_to_be_fast_has_the_whole_patience() -> None:
    assert (await waited(StoreTimeout(Store().health, TIMEOUT), 0.6))[0]


async def test_one_slow_flush_is_waited_for_while_others_are_answered() -> None:
    store_timeout = StoreTimeout(Store().health, TIMEOUT)
    await answers(store_timeout)
    slow = asyncio.create_task(waited(store_timeout, 0.7))
    while not slow.done():
        await store_timeout.wait_for(asyncio.sleep(0.02), may_abandon=lambda: True, backlogs=backlogs)
    assert (await slow)[0]


async def test_a_slow_store_is_not_a_silent_one() -> None:
    store_timeout = StoreTimeout(Store().health, TIMEOUT)
    await answers(store_timeout)
    assert (await waited(store_timeout, 0.2))[0]
    assert store_timeout.silence_seconds() > 0.7, "it took long just now, so that it may again"


async def test_a_store_that_ends_after_errors_is_reported_with_both() -> None:
    store = Store()
    assert await store.health.check("no space left on device", 1.0)
    assert store.health.last_error() == "no space left on device"
    store._refuses = True
    assert not await store.health.check("the connection was closed", 1.0)
    assert store.health.last_error() == "no; its last error was: no space left on device"
    await store.health.stop()
