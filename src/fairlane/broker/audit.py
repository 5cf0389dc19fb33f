"""The audit log: actions and refusals, stored in a chain that cannot be changed unnoticed.

An action with a credential is stored twice: its start, before anything is done, and its outcome, before the answer. So
a broker that dies in between leaves an entry, and an action that cannot be recorded is not done. Refusals are stored in
the background, at a limited rate for each caller. The limit keeps one caller from filling the disk or crowding out the
refusals of others. Refusals beyond the limit are counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import monotonic
from typing import Final, Literal

from fairlane.errors import FairlaneError, Overloaded, Unavailable
from fairlane.model.audit import AuditAction, AuditEntry
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.principal import ANYBODY, NOBODY, Principal
from fairlane.runtime.rate import RateLimit
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store
from fairlane.wire.audit import AuditLine, AuditPage, AuditQuery, AuditVerified

Outcome = Literal["begun", "done", "refused", "failed"]
KEEP_SECONDS: Final = 365 * 24 * 3600
REFUSALS_MAX: Final = 20
"""Refusals of one caller that are recorded at once, and per minute from then on. All anonymous callers are one."""
BURSTS: Final = {"refusal": (REFUSALS_MAX, REFUSALS_MAX / 60), "login": (1, 1 / 60), "change": (1_000, 10.0)}
"""Rate limits of one caller by the kind of entry: the burst, and the entries per second after it."""
_CALLERS_MAX: Final = 10_000
_FORGET_SECONDS: Final = 3600.0
_WAITING_MAX: Final = 10_000
_AT_ONCE: Final = 500
_FIELD_CHARS_MAX: Final = 300
_LAST: Final = 2**62

log = logging.getLogger(__name__)


class _RateLimited:
    """The rate limit of one caller for one kind of entry, with a count of the entries dropped since the last one."""

    def __init__(self, kind: str) -> None:
        burst, per_second = BURSTS[kind]
        self.rate_limit = RateLimit(per_second, burst)
        self._left_out = 0

    def next(self) -> int | None:
        """Return the number of entries dropped before this one, or None if this one is dropped too."""
        if not self.rate_limit.allows(monotonic()):
            self._left_out += 1
            return None
        left_out, self._left_out = self._left_out, 0
        return left_out


class AuditLog(Service):
    """The audit log of a store.

    Waiting entries are written in order. They are kept for `keep_seconds`, 0 for ever.
    """

    def __init__(self, store: Store, keep_seconds: int = KEEP_SECONDS) -> None:
        super().__init__("audit log")
        self._store = store
        self.keep_seconds = keep_seconds
        self._waiting: deque[tuple[AuditEntry, asyncio.Future[int] | None]] = deque()
        self._rate_limited: dict[tuple[str, str, str], _RateLimited] = {}
        self._forget_at = monotonic() + _FORGET_SECONDS

    async def begin(self, caller: Principal, action: str, target: str, source: str) -> int | None:
        """Store an entry for an action that is about to start, and return its number.

        Raises Unavailable if it cannot be stored; the action must not be done then. Returns None for callers without a
        credential, whose outcomes alone are recorded.
        """
        if caller is ANYBODY:
            return None
        if not self._of("change", caller).rate_limit.allows(monotonic()):
            burst, per_second = BURSTS["change"]
            raise Overloaded(
                f"{caller.name} may make {per_second:g} changes per second after the first {burst:,}, because the "
                "audit log records each",
                retry_after=1 / per_second,
            )
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._put(_entry(caller, action, target, "begun", source), stored)
        return await stored

    async def add(
        self, caller: Principal, action: str, target: str, outcome: Outcome, source: str, began: int | None = None
    ) -> None:
        """Add an entry, and wait until it is stored. Entries of callers without a credential are stored later.

        Waits while the store refuses the entry. `began` is the number of the entry of the action's start.
        """
        entry = _entry(caller, action, target, outcome, source, began)
        if caller is ANYBODY:
            self._put(entry, None)
            return
        stored = asyncio.get_running_loop().create_future()
        self._put(entry, stored)
        await stored

    def refused(self, caller: Principal | None, action: str, target: str, source: str) -> None:
        """Add an entry for a refused request in the background, unless the caller had too many lately."""
        left_out = self._of("refusal", caller or NOBODY).next()
        if left_out is None:
            return
        if left_out:
            target = f"{target} ({left_out} refusals before it are not listed)"
        self._put(_entry(caller, action, target, "refused", source), None)

    async def logged_in(self, caller: Principal, target: str, source: str) -> None:
        """Add an entry for a login, unless the caller had one within the last minute."""
        left_out = self._of("login", caller).next()
        if left_out is None:
            return
        if left_out:
            target = f"{target} ({left_out} logins before it are not listed)"
        await self.add(caller, "login", target, "done", source)

    def _of(self, kind: str, caller: Principal) -> _RateLimited:
        key = kind, caller.tenant, caller.name
        noted = self._rate_limited.get(key)
        if noted is None:
            if len(self._rate_limited) >= _CALLERS_MAX:
                self._rate_limited.clear()
            noted = self._rate_limited[key] = _RateLimited(kind)
        return noted

    def _put(self, entry: AuditEntry, stored: asyncio.Future[int] | None) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            if stored is not None and entry.outcome == "begun":
                stored.set_exception(_not_stored())
                return
            log.error(
                "audit entry lost, too many wait for the store: %(action)s %(target)s by %(caller)s",
                _fields(entry),
            )
            if stored is not None:
                stored.set_result(0)
            return
        self._waiting.append((entry, stored))
        self.wake()

    async def _run(self) -> None:
        while True:
            try:
                await self._write()
                if self.keep_seconds and monotonic() >= self._forget_at:
                    self._forget_at = monotonic() + _FORGET_SECONDS
                    while await self._store.audit.forget(seconds=self.keep_seconds, limit=_AT_ONCE):
                        pass
            except FairlaneError as error:
                self._failed_to_store(error)
            if self._stopping:
                return
            await self._rest(1.0 if self._waiting else 60.0)

    async def _write(self) -> None:
        while self._waiting:
            some = [self._waiting[index] for index in range(min(_AT_ONCE, len(self._waiting)))]
            numbers = await self._store.audit.add([entry for entry, _ in some])
            for number in numbers:
                _, stored = self._waiting.popleft()
                if stored is not None and not stored.done():
                    stored.set_result(number)

    def _failed_to_store(self, error: FairlaneError) -> None:
        """Give up waiting for entries.

        Entries of finished actions are kept and logged meanwhile. Actions that are about to start fail.
        """
        if not isinstance(error, Unavailable):
            log.error("cannot store audit entries: %(error)s", {"error": error})
        waiting, self._waiting = self._waiting, deque()
        for entry, stored in waiting:
            if entry.outcome == "begun":
                if stored is not None and not stored.done():
                    stored.set_exception(_not_stored())
                continue
            if stored is not None and not stored.done():
                log.warning("audit entry waits for the store: %(action)s %(target)s by %(caller)s", _fields(entry))
                stored.set_result(0)
            self._waiting.append((entry, None))

    async def page(self, query: AuditQuery, tenant: str | None) -> AuditPage:
        """Return entries of a tenant or of all, newest first."""
        found = await self._store.audit.page(
            tenant, before=query.before or _LAST, limit=query.limit, search=query.search or None
        )
        return AuditPage(entries=[_line(entry) for entry in found])

    async def verify(self) -> AuditVerified:
        """Verify every hash.

        Entries may be missing at the beginning if the oldest remaining one is old enough to be deleted itself.
        """
        last, head = await self._store.audit.head()
        deletable_at = await self._store.now() - self.keep_seconds * 1_000_000 if self.keep_seconds else 0
        number, before, count, first = 0, b"", 0, 0
        while number < last and (some := await self._store.audit.after(number, limit=_AT_ONCE)):
            for entry in some:
                if entry.number > last:
                    break
                error = None
                if count and entry.number != number + 1:
                    error = f"entries {number + 1} to {entry.number - 1} are missing"
                elif entry.hashed(before if count or entry.number == 1 else entry.previous) != entry:
                    error = f"entry {entry.number} was changed after it was written"
                elif not count and entry.number > 1 and entry.at >= deletable_at:
                    error = (
                        f"entries 1 to {entry.number - 1} are missing, and entry {entry.number} is too recent for "
                        "them to have expired, unless --audit-days was shorter before"
                    )
                if error is not None:
                    return AuditVerified(
                        whole=False, entries=count, first=first or None, last=number or None, error=error
                    )
                first, number, before, count = first or entry.number, entry.number, entry.hash, count + 1
            if some[-1].number >= last:
                break
        whole = number == last and (before == head or not count)
        error = None if whole else f"the last entries are missing: there were {last}"
        return AuditVerified(
            whole=whole, entries=count, first=first or None, last=number or None, head=head.hex(), error=error
        )


def _line(one: AuditAction) -> AuditLine:
    ended = moment_or_none(one.ended_at)
    return AuditLine(
        number=one.number,
        at=Moment(one.at),
        tenant=one.tenant,
        caller=one.caller,
        action=one.action,
        target=one.target,
        outcome=one.end or one.outcome,
        ended_at=ended,
        source=one.source,
        hash=one.hash.hex(),
    )


def _not_stored() -> Unavailable:
    return Unavailable("the audit log cannot be written now, so the action was not done; try again")


def _entry(
    caller: Principal | None, action: str, target: str, outcome: Outcome, source: str, began: int | None = None
) -> AuditEntry:
    return AuditEntry(
        tenant=ANYBODY.tenant if caller is None else caller.tenant,
        caller="nobody" if caller is None else caller.name,
        action=action,
        target=target[:_FIELD_CHARS_MAX],
        outcome=outcome,
        source=source,
        began=began,
    )


def _fields(entry: AuditEntry) -> dict[str, str]:
    return {"action": entry.action, "target": entry.target, "caller": entry.caller}
