"""Tenants: create, limit and delete, for operators; and the remaining quotas of each.

Creating something counts its kind, at most once a second; in between the creations of this broker are added. Stored
bytes are measured as rarely as measuring is slow. So concurrent brokers may slightly exceed a quota.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeVar
from weakref import WeakValueDictionary

from fairlane.broker.cells import check_complete
from fairlane.broker.count_cache import cache_seconds
from fairlane.broker.peer_stats import PeerStats
from fairlane.errors import AlreadyExists, NotFound, OverQuota, QuotaReached
from fairlane.model.moment import moment_or_none
from fairlane.model.names import check_name
from fairlane.model.tenant import Quotas
from fairlane.model.tenant import Tenant as StoredTenant
from fairlane.runtime.rate import RateLimit, WorkLimit
from fairlane.runtime.read_order import ReadOrder
from fairlane.store.contract.store import Store
from fairlane.store.families.queues import CATALOGUE
from fairlane.wire.tenants import ListedTenant, Pushed, Tenant, TenantDetail, Used

T = TypeVar("T")
Countable = Literal["queues", "partitions", "groups", "schedules"]
_COUNTABLE: Final[tuple[Countable, ...]] = ("queues", "partitions", "groups", "schedules")
_COUNT_SECONDS: Final = 1.0
_NAME_CHARS_MAX: Final = 63
_RETRY_SECONDS_MAX: Final = 60.0
NONE: Final = Quotas()
"""Quotas of most tenants: this same object, so that a push can skip the check."""


class Tenants:
    """All tenants. `known` has their quotas."""

    def __init__(self, store: Store, peer_stats: PeerStats) -> None:
        self._store = store
        self._peer_stats = peer_stats
        self.known: dict[str, Quotas] = {}
        self.rate_limits: dict[str, RateLimit] = {}
        """Rate limits of requests, for tenants with such a quota."""
        self.work_limits: dict[str, WorkLimit] = {}
        """Limits of the work of expressions, for tenants with such a quota. The dictionary itself is never replaced."""
        self.tenant_quotas: WeakValueDictionary[str, TenantQuota] = WeakValueDictionary()
        """Quotas of the tenants in memory."""
        self._used: dict[str, tuple[float, Counter[str]]] = {}
        self._reads = ReadOrder()

    async def reload(self) -> None:
        """Read the tenants. The result of an earlier read is ignored once a later one was loaded."""
        number = self._reads.start()
        found = await self._store.tenants.all()
        if not self._reads.may_load(number):
            return
        self.known = {one.name: NONE if one.quotas == NONE else one.quotas for one in found}
        for name, quota in self.tenant_quotas.items():
            quota.limit(self.known.get(name, NONE))
        limits = {name: most for name, one in self.known.items() if (most := one.requests_per_second) is not None}
        self.rate_limits = {
            name: known if (known := self.rate_limits.get(name)) and known.per_second == most else RateLimit(most)
            for name, most in limits.items()
        }
        works = {name: most for name, one in self.known.items() if (most := one.expression_work_per_second) is not None}
        for name in {*works, *self.work_limits}:
            work_limit, most = self.work_limits.get(name), works.get(name)
            if most is None:
                del self.work_limits[name]
            elif work_limit is None or work_limit.per_second != most:
                self.work_limits[name] = WorkLimit(most)
        self._used.clear()

    async def all(self) -> list[ListedTenant]:
        """Return all tenants with their recent push rates, by name."""
        pushed = await self.pushed()
        return [
            ListedTenant(**_fields(one), pushed=pushed.get(one.name) or Pushed())
            for one in await self._store.tenants.all()
        ]

    async def pushed(self) -> dict[str, Pushed]:
        """Return what each tenant pushed in the last minute. Tenants that pushed nothing are left out."""
        rates = await self._peer_stats.tenant_rates()
        total = sum(one.messages for one in rates.values())
        return {
            name: Pushed(
                messages_per_second=round(one.messages, 3),
                bytes_per_second=round(one.bytes, 1),
                share=round(one.messages / total, 4),
            )
            for name, one in rates.items()
        }

    async def show(self, name: str) -> TenantDetail:
        """Return a tenant with its quotas and usage. Raises NotFound."""
        found = await self._store.tenants.get(check_name("tenant", name))
        if found is None:
            raise NotFound(f"there is no tenant {name!r:.80}")
        used = Used(
            **dict(zip(_COUNTABLE, await self._store.tenants.counts(name), strict=True)),
            depth=await unfinished(self._store, name),
            bytes=await self._store.tenants.stored_bytes(name),
        )
        return TenantDetail(**_fields(found), used=used)

    async def create(self, name: str, quotas: Quotas = NONE) -> Tenant:
        """Create a tenant. Raises AlreadyExists."""
        if not await self._store.tenants.make(check_name("tenant", name, chars_max=_NAME_CHARS_MAX), quotas):
            raise AlreadyExists(f"there is a tenant {name!r:.80} already")
        return await self._changed(name)

    async def limit(self, name: str, quotas: Quotas) -> Tenant:
        """Replace all quotas of a tenant. Raises NotFound."""
        await self._store.tenants.limit(check_name("tenant", name), quotas)
        return await self._changed(name)

    async def delete(self, name: str) -> bool:
        """Delete a tenant without queues, with its specs, schedules, sources, streams and keys.

        Returns False if it does not exist. Raises Conflict while it has queues.
        """
        deleted = await self._store.tenants.delete(check_name("tenant", name))
        await self.reload()
        self._store.hint(CATALOGUE)
        return deleted

    async def _changed(self, name: str) -> Tenant:
        await self.reload()
        self._store.hint(CATALOGUE)
        return await self.show(name)

    def limits(self, tenant: str, kind: Countable) -> bool:
        """Return True if the tenant has a quota of this kind."""
        quotas = self.known.get(tenant)
        return quotas is not None and getattr(quotas, kind) is not None

    async def check(self, tenant: str, kind: Countable, new: int) -> None:
        """Raise QuotaReached if the tenant may not have `new` more."""
        most: int | None = getattr(self.known.get(tenant, NONE), kind)
        if most is None or not new:
            return
        until, used = self._used.get(tenant, (0.0, Counter[str]()))
        if time.monotonic() >= until:
            used = Counter(dict(zip(_COUNTABLE, await self._store.tenants.counts(tenant), strict=True)))
            check_complete(self._store)
            self._used[tenant] = time.monotonic() + _COUNT_SECONDS, used
        if used[kind] + new > most:
            raise QuotaReached(
                f"tenant {tenant!r} may have {most} {kind} and has {used[kind]}; delete some, or ask for more"
            )
        used[kind] += new

    def recount(self, tenant: str) -> None:
        """Drop the cached counts of the tenant after a delete, so that the next check counts again."""
        self._used.pop(tenant, None)


async def unfinished(store: Store, tenant: str) -> int:
    """Return the number of messages of a tenant that some group has not finished."""
    ids = [queue.id for queue in await store.queues.all(tenant)]
    return sum(one.unfinished for one in await store.statistics.queues(ids))


def _fields(tenant: StoredTenant) -> dict[str, Any]:
    return {"name": tenant.name, "quotas": tenant.quotas, "created_at": moment_or_none(tenant.created_at)}


class _Measure:
    """A cached check of the stored bytes of a tenant against its quota."""

    def __init__(self, measure: Callable[[Quotas], Awaitable[str | None]]) -> None:
        self._measure = measure
        self._full: str | None = None
        self.until = 0.0

    def forget(self) -> None:
        self.until = 0.0

    async def full(self, quotas: Quotas) -> str | None:
        """Return why the quota is exhausted, or None if it is not. The measurement may be some seconds old."""
        began = time.monotonic()
        if began >= self.until:
            self.until = began + 60.0  # concurrent callers use the previous measurement
            try:
                self._full = await self._measure(quotas)
            finally:
                self.until = (now := time.monotonic()) + max(_COUNT_SECONDS, cache_seconds(now - began))
        return self._full


class TenantQuota:
    """The quota of one tenant: for messages, for other stored data, and for long polls."""

    def __init__(self, store: Store, tenant: str, tenants: Tenants) -> None:
        self._store = store
        self._tenant = self.tenant = tenant
        self._rates: dict[str, WorkLimit] = {}
        """Rate limits of pushed messages and bytes, by the name of their unit."""
        self.limit(tenants.known.get(tenant, NONE))
        tenants.tenant_quotas[tenant] = self
        self._polls = 0
        self._messages = _Measure(self._measure_messages)
        self._others = _Measure(self._measure_others)

    def limit(self, quotas: Quotas) -> None:
        """Use these quotas from now on."""
        self.quotas = quotas
        limits = {"messages": quotas.messages_per_second, "bytes": quotas.bytes_per_second}
        self._rates = {
            unit: known if (known := self._rates.get(unit)) and known.per_second == most else WorkLimit(most)
            for unit, most in limits.items()
            if most is not None
        }

    async def check(self, messages: int = 0, size: int = 0) -> None:
        """Raise OverQuota if the tenant may store no more messages or bytes, or pushes too many a second.

        Counts these messages with payloads of `size` bytes. A batch larger than what is left is accepted, and delays
        the next push until the rate is kept.
        """
        await self._check_stored()
        now = time.monotonic()
        for unit, limit in self._rates.items() if messages else ():
            if (seconds := limit.seconds_until_available(now)) is not None:
                why = f"tenant {self._tenant!r} may push {limit.per_second} {unit} a second to each process"
                raise OverQuota(why, retry_after=min(max(seconds, 1.0), _RETRY_SECONDS_MAX))
        for unit, limit in self._rates.items():
            limit.spend(messages if unit == "messages" else size)

    async def _check_stored(self) -> None:
        if self.quotas.depth is not None or self.quotas.bytes is not None:
            self._refuse(await self._messages.full(self.quotas))

    async def check_others(self) -> None:
        """Raise OverQuota if the tenant may store no more other data.

        Messages do not count, because finishing messages may require storing something.
        """
        if self.quotas.bytes is not None:
            self._refuse(await self._others.full(self.quotas))

    def _refuse(self, full: str | None) -> None:
        if full is not None:
            raise OverQuota(f"tenant {self._tenant!r} is full: {full}")

    def forget(self) -> None:
        """Measure again at the next check."""
        self._messages.forget()
        self._others.forget()

    async def _measure_messages(self, quotas: Quotas) -> str | None:
        again = "try again when some of it is finished"
        if quotas.depth is not None:
            depth = await unfinished(self._store, self._tenant)
            if depth >= quotas.depth:
                return f"{depth} messages are not finished, and the quota is {quotas.depth}; {again}"
        if quotas.bytes is not None:
            stored = await self._store.tenants.stored_bytes(self._tenant)
            if stored >= quotas.bytes:
                return f"{stored} bytes are stored, and the quota is {quotas.bytes}; {again}"
        return None

    async def _measure_others(self, quotas: Quotas) -> str | None:
        stored = await self._store.tenants.other_bytes(self._tenant)
        if quotas.bytes is None or stored < quotas.bytes:
            return None
        return f"{stored} bytes are stored besides messages, and the quota is {quotas.bytes}; delete some, or raise it"

    async def wait(self, popping: Awaitable[T], most: int) -> T:
        """Await a pop that may wait. Raises OverQuota if the tenant has too many long polls."""
        if self._polls >= most:
            if hasattr(popping, "close"):
                popping.close()
            raise OverQuota(f"tenant {self._tenant!r} has {self._polls} long polls here already, and may have {most}")
        self._polls += 1
        try:
            return await popping
        finally:
            self._polls -= 1
