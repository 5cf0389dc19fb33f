"""Leases: keep one longer, or give it back."""

from __future__ import annotations

from typing import Any

from fairlane.client.family import Family
from fairlane.model.limits import LEASE_SECONDS_MAX, RENEW_SECONDS
from fairlane.model.message import Batch, Message
from fairlane.model.names import check_count, check_name
from fairlane.model.outcome import RenewOutcome
from fairlane.wire.leases import ExtendBody, Released, Renewed

Leased = str | Batch[Any] | Message[Any]
"""A lease, or what was given under it."""


class Leases(Family):
    async def renew(self, lease: Leased, seconds: int | None = None) -> RenewOutcome:
        """Keep a lease for `seconds` from now, or longer if it had more left; of a batch for as long as its pop was
        given it, and otherwise for a minute, unless they are given. `renewed` is 0 if it ended."""
        if seconds is None:
            seconds = lease.lease_seconds if isinstance(lease, Batch) else RENEW_SECONDS
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        answer = await self._ask(Renewed, "POST", *_path(lease, "extend"), body=ExtendBody(seconds=seconds))
        return RenewOutcome(answer.renewed, answer.new_expires_at)

    async def release(self, lease: Leased) -> int:
        """Give a lease back at once, without a charge; how many lanes it had."""
        return (await self._ask(Released, "POST", *_path(lease, "release"))).released


def _path(lease: Leased, verb: str) -> tuple[str, ...]:
    return "lease", check_name("lease", lease if isinstance(lease, str) else lease.lease), verb
