"""Tenants: made, limited and deleted by whoever runs the broker, and what is left of the quotas of each.

Where something new is made its kind is counted, at most once a second; in between what this broker made is added. What
is stored is measured as seldom as it is dear. So brokers that are asked at once may let a little more pass."""

from __future__ import annotations

import time
from builtins import list as List  # there is a verb of that name
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar
from weakref import WeakValueDictionary

from fairlane.broker.counting import serves_seconds
from fairlane.errors import AlreadyExists, NotFound, OverQuota, QuotaReached
from fairlane.model.names import check_name
from fairlane.model.tenant import Quotas
from fairlane.runtime.rate import Allowance, Ration
from fairlane.store.contract.store import Store
from fairlane.store.families.queues import CATALOGUE
from fairlane.wire.base import made
from fairlane.wire.tenants import Tenant, TenantDetail, Used

T = TypeVar("T")
Countable = Literal["queues", "partitions", "groups", "schedules"]
_COUNTABLE: Final[tuple[Countable, ...]] = ("queues", "partitions", "groups", "schedules")
_COUNT_SECONDS: Final = 1.0
_NAME_CHARS_MAX: Final = 63
NONE: Final = Quotas()
"""Of most tenants: this very one, so that a push need not look closer."""


class Tenants:
    """All tenants. `known` are their quotas."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.known: dict[str, Quotas] = {}
        self.rations: dict[str, Ration] = {}
        """Of requests, by those tenants that have a quota of them."""
        self.allowances: dict[str, Allowance] = {}
        """Of the work of expressions, by those tenants that have a quota of it. Always this very one."""
        self.rooms: WeakValueDictionary[str, Room] = WeakValueDictionary()
        """Of the tenants that are in memory."""
        self._used: dict[str, tuple[float, Counter[str]]] = {}

    async def reload(self) -> None:
        found = await self._store.tenants.list()
        self.known = {one.name: NONE if one.quotas == NONE else one.quotas for one in found}
        for name, room in self.rooms.items():
            room.quotas = self.known.get(name, NONE)
        limits = {name: most for name, one in self.known.items() if (most := one.requests_per_second) is not None}
        self.rations = {
            name: known if (known := self.rations.get(name)) and known.per_second == most else Ration(most)
            for name, most in limits.items()
        }
        works = {name: most for name, one in self.known.items() if (most := one.expression_work_per_second) is not None}
        for name in {*works, *self.allowances}:
            allowance, most = self.allowances.get(name), works.get(name)
            if most is None:
                del self.allowances[name]
            elif allowance is None or allowance.per_second != most:
                self.allowances[name] = Allowance(most)
        self._used.clear()

    async def list(self) -> List[Tenant]:
        """By name."""
        return [made(Tenant, one) for one in await self._store.tenants.list()]

    async def show(self, name: str) -> TenantDetail:
        """A tenant, with its quotas and what it has. Raises NotFound."""
        found = await self._store.tenants.get(check_name("tenant", name))
        if found is None:
            raise NotFound(f"there is no tenant {name!r:.80}")
        used = dict(zip(_COUNTABLE, await self._store.tenants.counts(name), strict=True))
        return made(TenantDetail, found, used=Used(**used))

    async def create(self, name: str, quotas: Quotas = NONE) -> Tenant:
        """Raises AlreadyExists."""
        if not await self._store.tenants.make(check_name("tenant", name, chars_max=_NAME_CHARS_MAX), quotas):
            raise AlreadyExists(f"there is a tenant {name!r:.80} already")
        return await self._changed(name)

    async def limit(self, name: str, quotas: Quotas) -> Tenant:
        """Give it these quotas in place of all that it had. Raises NotFound."""
        await self._store.tenants.limit(check_name("tenant", name), quotas)
        return await self._changed(name)

    async def delete(self, name: str) -> bool:
        """Delete a tenant that has no queues any more, with its specs, schedules, sources, streams and keys; False if
        it is not there. Conflict while it has queues."""
        deleted = await self._store.tenants.delete(check_name("tenant", name))
        await self.reload()
        self._store.hint(CATALOGUE)
        return deleted

    async def _changed(self, name: str) -> Tenant:
        await self.reload()
        self._store.hint(CATALOGUE)
        return await self.show(name)

    def limits(self, tenant: str, kind: Countable) -> bool:
        """Whether there is a quota of them."""
        quotas = self.known.get(tenant)
        return quotas is not None and getattr(quotas, kind) is not None

    async def check(self, tenant: str, kind: Countable, new: int) -> None:
        """QuotaReached if the tenant may not have so many more."""
        most: int | None = getattr(self.known.get(tenant, NONE), kind)
        if most is None or not new:
            return
        until, used = self._used.get(tenant, (0.0, Counter[str]()))
        if time.monotonic() >= until:
            used = Counter(dict(zip(_COUNTABLE, await self._store.tenants.counts(tenant), strict=True)))
            self._used[tenant] = time.monotonic() + _COUNT_SECONDS, used
        if used[kind] + new > most:
            raise QuotaReached(
                f"tenant {tenant!r} may have {most} {kind} and has {used[kind]}; delete some, or ask for more"
            )
        used[kind] += new

    def recount(self, tenant: str) -> None:
        """Drop the cached counts of the tenant after a delete, so that the next check counts again."""
        self._used.pop(tenant, None)


class _Measure:
    """A cached check of the stored bytes of a tenant against its quota."""

    def __init__(self, measure: Callable[[Quotas], Awaitable[str | None]]) -> None:
        self._measure = measure
        self._full: str | None = None
        self.until = 0.0

    async def full(self, quotas: Quotas) -> str | None:
        """Return why the quota is exhausted, or None if it is not. The measurement may be some seconds old."""
        began = time.monotonic()
        if began >= self.until:
            self.until = began + 60.0  # concurrent callers use the previous measurement
            try:
                self._full = await self._measure(quotas)
            finally:
                self.until = (now := time.monotonic()) + max(_COUNT_SECONDS, serves_seconds(now - began))
        return self._full


class Room:
    """The room that a tenant has left for messages, for what it stores beside them, and for pops that wait."""

    def __init__(self, store: Store, tenant: str, tenants: Tenants) -> None:
        self._store = store
        self._tenant = tenant
        self.quotas = tenants.known.get(tenant, NONE)
        tenants.rooms[tenant] = self
        self._polls = 0
        self._messages = _Measure(self._measure_messages)
        self._others = _Measure(self._measure_others)

    async def check(self) -> None:
        """OverQuota if as many messages, or as many bytes of them, are stored as may be."""
        if self.quotas.depth is not None or self.quotas.bytes is not None:
            self._refuse(await self._messages.full(self.quotas))

    async def check_others(self) -> None:
        """OverQuota if as many bytes are stored beside messages as may be. Messages do not count: consumers that
        finish them may have to store something."""
        if self.quotas.bytes is not None:
            self._refuse(await self._others.full(self.quotas))

    def _refuse(self, full: str | None) -> None:
        if full is not None:
            raise OverQuota(f"tenant {self._tenant!r} is full: {full}")

    def forget(self) -> None:
        """Measure again at the next check."""
        self._messages.until = self._others.until = 0.0

    async def _measure_messages(self, quotas: Quotas) -> str | None:
        again = "try again when some of it is finished"
        if quotas.depth is not None:
            ids = [queue.id for queue in await self._store.queues.list(self._tenant)]
            depth = sum(one.unfinished for one in await self._store.statistics.queues(ids))
            if depth >= quotas.depth:
                return f"{depth} messages are not finished, and {quotas.depth} may be; {again}"
        if quotas.bytes is not None:
            stored = await self._store.tenants.stored_bytes(self._tenant)
            if stored >= quotas.bytes:
                return f"{stored} bytes are stored, and {quotas.bytes} may be; {again}"
        return None

    async def _measure_others(self, quotas: Quotas) -> str | None:
        stored = await self._store.tenants.other_bytes(self._tenant)
        if quotas.bytes is None or stored < quotas.bytes:
            return None
        return f"{stored} bytes are stored beside its messages, and {quotas.bytes} may be; delete some, or ask for more"

    async def wait(self, popping: Awaitable[T], most: int) -> T:
        """A pop that may wait. OverQuota if as many wait already as may."""
        if self._polls >= most:
            if hasattr(popping, "close"):
                popping.close()
            raise OverQuota(f"tenant {self._tenant!r} has {self._polls} long polls here already, and may have {most}")
        self._polls += 1
        try:
            return await popping
        finally:
            self._polls -= 1
