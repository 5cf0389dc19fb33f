"""The expression quota of a tenant: how much work its expressions may do per second.

Expressions run on the event loop that all tenants share. The cost of one is known only after it ran. So a request is
admitted while any quota is left and never refused half-way; later requests wait for what it overdrew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fairlane.errors import OverQuota
from fairlane.runtime.rate import WorkLimit, retry_after
from fairlane.spec.expression import operators


class Usage:
    """Work that the expressions of one request have done, in bytes of messages read, copied or compared."""

    def __init__(self) -> None:
        self.units = 0

    @contextmanager
    def on(self, size: int) -> Iterator[None]:
        """Measure one evaluation over a message of `size` bytes."""
        operators.reset_budget()
        try:
            yield
        finally:
            self.units += size + operators.used_budget()


class ExpressionQuota:
    """The expression quota of one tenant.

    `work_limits` has an entry for each tenant with a quota, and its owner keeps it up to date.
    """

    def __init__(self, tenant: str, work_limits: Mapping[str, WorkLimit]) -> None:
        self._tenant = tenant
        self.work_limits = work_limits

    @contextmanager
    def request(self) -> Iterator[Usage]:
        """Charge the expressions of one request to the quota. Raises OverQuota if nothing is left."""
        work_limit, usage = self.work_limits.get(self._tenant), Usage()
        if work_limit is None:
            yield usage
            return
        seconds = work_limit.seconds_until_available(time.monotonic())
        if seconds is not None:
            raise OverQuota(
                f"the expressions of tenant {self._tenant!r} have used up their quota: {work_limit.per_second} "
                "bytes read, copied or compared per second in each process",
                retry_after=retry_after(seconds),
            )
        try:
            yield usage
        finally:
            work_limit.spend(usage.units)
