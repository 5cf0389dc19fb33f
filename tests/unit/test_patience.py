"""How long the store is waited for: one slow flush has the whole patience; a silent store is asked after a quarter of
it, and waited for as long as it answers."""

from __future__ import annotations

import asyncio
from time import monotonic

from fairlane.broker.deferral.patience import Patience, StoreWatch
from fairlane.errors import StoreUnavailable
from fairlane.store.contract.journal import Backlog

PATIENCE = 1.2
BACKLOG = Backlog("push", "t", "q", "a")


class Store:
    """Answers the question whether it is there, unless it is `frozen` or `refuses`."""

    def __init__(self, *, frozen: bool = False, refuses: bool = False) -> None:
        self.asked = 0
        self._frozen = frozen
        self._refuses = refuses
        self.watch = StoreWatch(self)  # type: ignore[arg-type]

    async def answer(self) -> None:
        self.asked += 1
        if self._refuses:
            raise StoreUnavailable("no")
        if self._frozen:
            await asyncio.Event().wait()


def backlogs() -> frozenset[Backlog]:
    return frozenset([BACKLOG])


async def answers(patience: Patience, *, times: int = 40) -> None:
    """A store that was seen to be fast."""
    for _ in range(times):
        assert await patience.wait_for(asyncio.sleep(0), hasty=lambda: True, backlogs=backlogs)


async def waited(patience: Patience, seconds: float, *, hasty: bool = True) -> tuple[bool, float]:
    """Whether work of so many seconds was waited for, and how long."""
    began = monotonic()
    return (
        await patience.wait_for(asyncio.sleep(seconds), hasty=lambda: hasty, backlogs=backlogs) is not None,
        monotonic() - began,
    )


async def left(patience: Patience) -> None:
    while patience.abandoned:
        await asyncio.wait(set(patience.abandoned))


async def test_a_silent_store_is_asked_after_a_quarter_of_the_patience_and_given_up_if_it_does_not_answer() -> None:
    store = Store(frozen=True)
    patience = Patience(store.watch, PATIENCE)
    await answers(patience)
    began, end = monotonic(), asyncio.Event()
    assert await patience.wait_for(end.wait(), hasty=lambda: True, backlogs=backlogs) is None
    assert monotonic() - began >= PATIENCE / 2
    assert (store.asked, store.watch.up, store.watch.outages) == (1, False, 1)
    assert patience.unsettled() == {BACKLOG}, "what nobody waits for goes on"
    end.set()
    await left(patience)
    assert patience.unsettled() == set()
    await store.watch.stop()


async def test_a_silent_store_that_answers_has_the_whole_patience_for_each_flush() -> None:
    store = Store()
    patience = Patience(store.watch, PATIENCE)
    await answers(patience)
    assert (await waited(patience, 0.8))[0]
    await answers(patience)
    done, seconds = await waited(patience, 1.5)
    assert not done
    assert seconds >= PATIENCE
    assert (store.asked > 1, store.watch.up, store.watch.outages) == (True, True, 0), "one flush is no outage"
    await left(patience)


async def test_a_store_that_refuses_is_given_up_at_once_when_asked_and_is_back_when_it_answers() -> None:
    store = Store(refuses=True)
    assert not await store.watch.check("a push failed", 10.0)
    assert not store.watch.up
    store._refuses = False
    assert await store.watch.wait_back(60.0)
    assert store.watch.up
    await store.watch.stop()


async def test_work_that_could_not_go_to_the_journal_has_the_whole_patience() -> None:
    patience = Patience(Store(frozen=True).watch, PATIENCE)
    await answers(patience)
    assert (await waited(patience, 0.6, hasty=False))[0]


async def test_a_store_that_was_not_seen_to_be_fast_has_the_whole_patience() -> None:
    assert (await waited(Patience(Store().watch, PATIENCE), 0.6))[0]


async def test_one_slow_flush_is_waited_for_while_others_are_answered() -> None:
    patience = Patience(Store().watch, PATIENCE)
    await answers(patience)
    slow = asyncio.create_task(waited(patience, 0.7))
    while not slow.done():
        await patience.wait_for(asyncio.sleep(0.02), hasty=lambda: True, backlogs=backlogs)
    assert (await slow)[0]


async def test_a_slow_store_is_not_a_silent_one() -> None:
    patience = Patience(Store().watch, PATIENCE)
    await answers(patience)
    assert (await waited(patience, 0.2))[0]
    assert patience.silence_seconds() > 0.7, "it took long just now, so that it may again"
