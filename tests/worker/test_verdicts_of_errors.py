"""Exceptions that decide about retries, and the jitter of the backoff."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane import App, Dead, Fail
from fairlane.errors import InvalidRequest
from fairlane.testing import AppTest, FrozenClock


class CardRefused(Exception): ...


class CardExpired(CardRefused): ...


async def attempts_of(error: BaseException, **options: Any) -> int:
    """Return after how many attempts a message whose handler raises `error` is a dead letter."""
    app = App()

    @app.handler("q", max_attempts=3, backoff=0, **options)
    async def handle(data: int) -> None:
        raise error

    async with AppTest(app) as test:
        await test.push("q", 1)
        await test.drain()
        [letter] = await test.dead_letters("q")
        assert letter.error.startswith(type(error).__name__)
        return letter.attempts


@pytest.mark.parametrize(
    ("error", "options", "attempts"),
    [
        (CardRefused(), {}, 3),
        (CardRefused(), {"dead_on": CardRefused}, 1),
        (CardExpired(), {"dead_on": CardRefused}, 1),
        (ValueError(), {"dead_on": CardRefused}, 3),
        (ValueError(), {"dead_on": (CardRefused, ValueError)}, 1),
        (OSError(), {"retry_on": (OSError, TimeoutError)}, 3),
        (ValueError(), {"retry_on": (OSError, TimeoutError)}, 1),
        (CardExpired(), {"retry_on": CardRefused, "dead_on": CardExpired}, 1),
        (CardRefused(), {"retry_on": CardRefused, "dead_on": CardExpired}, 3),
    ],
)
async def test_classes_of_exceptions_say_whether_another_attempt_helps(
    error: BaseException, options: dict[str, Any], attempts: int
) -> None:
    assert await attempts_of(error, **options) == attempts


async def test_a_time_limit_is_a_timeout_error_like_any_other() -> None:
    app = App()

    @app.handler("q", timeout=0.01, dead_on=TimeoutError)
    def handle(data: int) -> None:
        import time

        time.sleep(0.1)

    async with AppTest(app) as test:
        await test.push("q", 1)
        await test.drain()
        [letter] = await test.dead_letters("q")
        assert letter.attempts == 1


async def test_a_failed_batch_gives_up_the_first_message_of_the_lane_and_goes_on_with_the_rest() -> None:
    app, seen = App(), list[list[int]]()

    @app.batch("q", dead_on=CardRefused)
    async def handle(data: list[int]) -> None:
        seen.append(data)
        if 1 in data:
            raise CardRefused

    async with AppTest(app) as test:
        for number in (1, 2):
            await test.push("q", number)
        await test.drain()
        assert [letter.data for letter in await test.dead_letters("q")] == [1]
        assert seen[-1] == [2]


def test_the_backoff_of_a_handler_is_jittered() -> None:
    app = App()
    app.handler("q", backoff=8, jitter=True)(lambda: None)
    app.handler("other", backoff=8)(lambda: None)
    jittered, plain = app.handlers
    waits = [found.after for _ in range(100) if isinstance(found := jittered.after_failure(Fail("e"), 2, None), Fail)]
    assert len({*waits}) > 1
    assert all(wait is not None and 8 <= wait <= 16 for wait in waits)
    assert plain.after_failure(Fail("e"), 2, None) == Fail("e", 16)


async def test_a_verdict_is_not_an_exception() -> None:
    app = App()

    @app.handler("q", retry_on=OSError)
    async def handle(data: int) -> Fail | Dead:
        return Fail("again", after=60)

    async with AppTest(app, clock=FrozenClock()) as test:
        await test.push("q", 1)
        await test.drain()
        assert not await test.dead_letters("q")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry_on": "OSError"}, "retry_on must be a class of exceptions or a tuple of them, not 'OSError'"),
        ({"dead_on": [OSError]}, "dead_on must be a class"),
        ({"dead_on": (OSError, 3)}, "dead_on must be a class of exceptions or a tuple of them, not 3"),
        ({"dead_on": KeyboardInterrupt}, "dead_on must be a class"),
        ({"jitter": 0.5}, "jitter must be true or false"),
    ],
)
def test_wrong_classes_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        App().handler("q", **options)(lambda: None)
    assert words in str(refused.value)
