"""Snoozes of findings: for a time, or until the finding changes."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final
from urllib.parse import unquote

import msgspec

from fairlane.broker.resource import Resource
from fairlane.errors import FairlaneError, NotFound
from fairlane.model.moment import Moment
from fairlane.store.families.snoozes import Snooze
from fairlane.wire.monitoring import Finding

_LONGEST_SECONDS: Final = 7 * 86_400
"""Time after which a snooze ends although its finding did not change."""
_GROWTH: Final = 2
"""Factor of the count of a finding that counts as a change."""
_WORST: Final = ("notice", "warning", "critical")


class Snoozes(Resource):
    async def apply(self, found: Sequence[Finding], gone: Set[str]) -> list[Finding]:
        """Mark the snoozed ones among the current findings. Ends snoozes of findings that are `gone`, by their keys."""
        if not found and not gone:
            return []
        try:
            snoozed = {one.key: one for one in await self._store.snoozes.all(self._tenant)}
            for key in gone & snoozed.keys():
                if snoozed[key].severity is not None:
                    await self._store.snoozes.end(self._tenant, key)
        except FairlaneError:  # findings are reported without their snoozes
            return list(found)
        return [
            _marked(one, snooze) if (snooze := snoozed.get(one.key)) and not _is_worse(one, snooze) else one
            for one in found
        ]

    async def add(self, key: str, found: Sequence[Finding], *, seconds: float | None, caller: str) -> Finding:
        """Snooze the finding with this key for `seconds`. None snoozes it until it changes. Raises NotFound."""
        one = next((one for one in found if one.key == key), None)
        if one is None:
            raise NotFound(f"there is no finding {key!r:.200} now; list the findings for their keys")
        lasts = _LONGEST_SECONDS if seconds is None else seconds
        until = Moment(await self._store.now() + int(lasts * 1_000_000))
        state = (one.severity, one.count) if seconds is None else (None, None)
        snooze = Snooze(key, until, caller, *state)
        await self._store.snoozes.set(self._tenant, snooze)
        return _marked(one, snooze)


def queue_of(key: str) -> str | None:
    """Return the queue that the finding with this key concerns. None if it concerns no single queue."""
    kind, _, rest = key.partition("/")
    return None if kind == "cell_away" else unquote(rest.partition("/")[0]) or None


def _marked(one: Finding, snooze: Snooze) -> Finding:
    return msgspec.structs.replace(one, snoozed_until=snooze.until, snoozed_by=snooze.caller)


def _is_worse(one: Finding, snooze: Snooze) -> bool:
    """Return True if the finding has worsened enough to end its snooze."""
    if snooze.severity is None:
        return False
    more = one.count is not None and snooze.count is not None and one.count >= _GROWTH * max(1, snooze.count)
    return more or _WORST.index(one.severity) > _WORST.index(snooze.severity)
