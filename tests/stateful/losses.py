"""Lost answers: a call was applied, its caller got no answer, and the call is repeated."""

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
    """A call of the store whose answer was lost, with its arguments and its result."""

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
        """Make a call, and repeat it once if its answer is lost."""
        again = next(self._lost, False)
        yield
        if again:
            yield

    @contextlib.contextmanager
    def losing(self, family: str, verb: str) -> Iterator[Lost]:
        """Let the broker lose answers of the store to this verb."""
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
        """Wait until the broker has released what it popped without a caller."""
        loop = self.backend.broker_loop
        loop.run(loop.broker._engine.popper.background.finish())
