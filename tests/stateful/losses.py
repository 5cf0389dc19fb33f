"""Answers that are lost: the call was applied, nobody was told, and it is made again."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from fairlane.broker import push, scheduled, transact
from fairlane.errors import OutcomeUnknown
from tests.stateful.backends import Backend


class Lost:
    """A call of the store whose answer did not arrive: what it was given, and what it answered."""

    arguments: tuple[Any, ...] = ()
    answer: Any = None
    happened = False


class Losing(RuleBasedStateMachine):
    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.backend = backend
        self._lost: Iterator[bool] = iter(())

    @initialize(lost=st.lists(st.sampled_from([False] * 7 + [True]), min_size=20, max_size=40))
    def some_answers_are_lost(self, lost: list[bool]) -> None:
        self._lost = itertools.cycle(lost)

    def calls(self) -> Iterator[None]:
        """One call; a second one if the caller gets no answer to the first."""
        again = next(self._lost, False)
        yield
        if again:
            yield

    @contextlib.contextmanager
    def losing(self, family: str, verb: str) -> Iterator[Lost]:
        """The broker may get no answer of the store to this verb."""
        lost = Lost()
        if not next(self._lost, False):
            yield lost
            return
        of = getattr(self.backend.broker_loop.broker._engine.store, family)
        real = getattr(of, verb)

        async def losing(*arguments: Any, **options: Any) -> Any:
            if lost.happened:
                return await real(*arguments, **options)
            lost.happened, lost.arguments = True, arguments
            lost.answer = await real(*arguments, **options)
            raise OutcomeUnknown("the answer was lost")

        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(of, verb, losing))
            for module in (push, scheduled, transact):
                stack.enter_context(mock.patch.object(module, "UNKNOWN_OUTCOME_PAUSES", (0.0, 0.0, 0.0)))
            yield lost

    def settle_down(self) -> None:
        """Return when the broker has given back what it popped for nobody."""
        loop = self.backend.broker_loop
        loop.run(loop.broker._engine.popper.background.finish())
