"""The work of a tenant's expressions, where a quota says how much they may do a second.

Expressions run on the event loop that all tenants share. What one costs is known when it is done: so a request is let
in while something is left, is never refused half-way, and who comes behind it waits for what it took too much."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fairlane.errors import OverQuota
from fairlane.runtime.rate import Allowance, retry_after
from fairlane.spec.expression import operators


class Spent:
    """Work spent on the expressions of one request, in bytes of messages that they read, copied or compared."""

    def __init__(self) -> None:
        self.units = 0

    @contextmanager
    def on(self, size: int) -> Iterator[None]:
        """Around one evaluation, over a message of so many bytes."""
        operators.begin()
        try:
            yield
        finally:
            self.units += size + operators.spent()


class Work:
    """The work of one tenant. `allowances` are those of the tenants that have a quota, and change with them."""

    def __init__(self, tenant: str, allowances: Mapping[str, Allowance]) -> None:
        self._tenant = tenant
        self.allowances = allowances

    @contextmanager
    def request(self) -> Iterator[Spent]:
        """Around all that one request has evaluated. OverQuota if nothing is left for it."""
        allowance, spent = self.allowances.get(self._tenant), Spent()
        if allowance is None:
            yield spent
            return
        lacking = allowance.lacks(time.monotonic())
        if lacking is not None:
            raise OverQuota(
                f"the expressions of tenant {self._tenant!r} have done as much work as they may: "
                f"{allowance.per_second} bytes read, copied or compared a second, at each process",
                retry_after=retry_after(lacking),
            )
        try:
            yield spent
        finally:
            allowance.spend(spent.units)
