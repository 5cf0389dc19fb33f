"""The retry policy of a client."""

from __future__ import annotations

import msgspec

from fairlane.errors import BrokerFailed, FairlaneError, InvalidRequest, Overloaded
from fairlane.runtime.backoff import backoff


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """The retry policy: which failures are retried, how often and how fast.

    A client retries overload (429), broker failures (5xx) and broken connections. It does not retry a request that a
    broker understood and refused. All attempts of a call carry the same transactionIds, so a call with an unknown
    outcome is safe to repeat.
    """

    attempts: int = 3
    """Total number of attempts. Failing over to another server is part of the same attempt."""
    retry_delay: float = 1.0
    """Seconds before the second attempt, doubled before each further one."""
    max_retry_delay: float = 30.0
    retry_on_429: bool = True
    honor_retry_after: bool = True

    def check(self) -> Retries:
        if self.attempts < 1:
            raise InvalidRequest(f"attempts is {self.attempts}; it must be at least 1")
        if self.retry_delay < 0 or self.max_retry_delay < 0:
            raise InvalidRequest("a delay between attempts must not be negative")
        return self

    def after_failure(self, failures: int) -> float | None:
        """Return the delay in seconds after this many failed attempts, or None to give up."""
        if failures >= self.attempts:
            return None
        return backoff(failures, base=self.retry_delay, most=self.max_retry_delay)

    def after_answer(self, error: FairlaneError, failures: int) -> float | None:
        """Return the delay before the next attempt, in seconds, or None if the call is not retried.

        `failures` counts the attempts that were answered with `error`.
        """
        if isinstance(error, BrokerFailed):
            return self.after_failure(failures)
        if not isinstance(error, Overloaded) or not self.retry_on_429:
            return None
        delay = self.after_failure(failures)
        if delay is None or not self.honor_retry_after:
            return delay
        return min(error.retry_after, self.max_retry_delay)
