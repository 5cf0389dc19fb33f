"""The service that notes the ends of parts of fan-ins, and pushes callbacks. Every broker runs it, without a leader."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from functools import partial

import msgspec

from fairlane.broker.compiled_specs import AllSpecs
from fairlane.broker.fan_in_watch import FanInWatch
from fairlane.broker.priority import Priorities
from fairlane.broker.push import Announcer
from fairlane.broker.transact import Transactor
from fairlane.errors import (
    Conflict,
    FairlaneError,
    LaneLocked,
    LaneWaiting,
    NotFound,
    QueueElsewhere,
    ShuttingDown,
    StoreCorrupt,
    Unavailable,
)
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store
from fairlane.store.families.fan_ins import Key, StoredPart
from fairlane.wire.base import encode
from fairlane.wire.fan_ins import FanInEnd, FanInFailure

FORGET_SECONDS = 24 * 3600
"""Time after which a fan-in that has ended is forgotten."""
RESULTS_BYTES_MAX = 1024 * 1024
"""Size of the results in a callback. Further ones are left out."""
FAILURES_MAX = 100
_ERROR_CHARS = 500
_STEP = 200
_FLOOR_SECONDS = 2.0
"""Longest pause between checks: an end without an ack at this broker wakes no check."""
_SHARE = 20
"""The checks of all fan-ins take at most one of this many parts of the time."""
_REFUSED_SECONDS = 5.0
_FORGET_EVERY = 600.0

_OF_ONE = LaneWaiting | LaneLocked | QueueElsewhere | StoreCorrupt
"""Errors of the store that concern a single fan-in. After any other error, all callbacks wait."""

log = logging.getLogger(__name__)


class FanInCallbacks(Service):
    def __init__(
        self,
        store: Store,
        watch: FanInWatch,
        transactor: Transactor,
        specs: AllSpecs,
        priorities: Priorities,
        announcer: Announcer,
    ) -> None:
        super().__init__("fan-ins", watch.news)
        self._store = store
        self._watch = watch
        self._transactor = transactor
        self._specs = specs
        self._priorities = priorities
        self._announcer = announcer
        self._refused_until: dict[Key, float] = {}
        self._forget_at = 0.0

    async def _run(self) -> None:
        away, all_at = False, 0.0
        while not self._stopping:
            try:
                began = time.monotonic()
                if began >= all_at:
                    await self.check_all()
                    took = time.monotonic() - began
                    all_at = time.monotonic() + max(_FLOOR_SECONDS * random.uniform(0.75, 1.25), _SHARE * took)  # noqa: S311  # not all at once
                else:
                    await self.settle_acked_parts()
                away = False
            except ShuttingDown:
                return
            except FairlaneError as error:
                if not away:
                    log.warning("cannot check fan-ins, retrying: %(error)s", {"error": error})
                away, all_at = True, time.monotonic() + _FLOOR_SECONDS
            await self._rest(max(0.0, all_at - time.monotonic()))

    async def check_all(self) -> None:
        """Note all ends of parts, and push all callbacks that are due. Forgets old fan-ins from time to time."""
        self._watch.touched.clear()
        self._watch.queues = await self._store.fan_ins.open_queues()
        if self._watch.queues:
            while len(await self._store.fan_ins.settle(None, limit=_STEP)) == _STEP:
                pass
            await self._push_ready(None)
        if time.monotonic() >= self._forget_at:
            while await self._store.fan_ins.forget(seconds=FORGET_SECONDS, limit=100) == 100:
                pass
            self._forget_at = time.monotonic() + _FORGET_EVERY

    async def settle_acked_parts(self) -> None:
        """Note ends of parts in partitions that were acked here, and push the callbacks of their fan-ins."""
        touched, self._watch.touched = self._watch.touched, set()
        ended, self._watch.made = self._watch.made, set()
        found = [""] * _STEP
        while touched and len(found) == _STEP:
            found = await self._store.fan_ins.settle(sorted(touched), limit=_STEP)
            ended.update(found)
        if ended:
            await self._push_ready(sorted(ended))

    async def _push_ready(self, ids: Sequence[str] | None) -> None:
        now = time.monotonic()
        self._refused_until = {key: until for key, until in self._refused_until.items() if until > now}
        left = set(self._refused_until)  # not tried now, and must not hold up those behind them
        while tried := [
            key for key in await self._store.fan_ins.ready(ids, limit=_STEP + len(left)) if key not in left
        ]:
            refused = {key for key in tried if not await self._try(key)}
            left |= refused
            if len(refused) < len(tried):
                self._announcer.wake_polls()

    async def _try(self, key: Key) -> bool:
        """Push a callback. Returns False if it is refused now, or another broker was faster."""
        try:
            await self.push(key)
            return True
        except FairlaneError as error:
            if isinstance(error, Unavailable) and not isinstance(error, _OF_ONE):
                raise
            if type(error) not in (Conflict, NotFound):
                await self._refuse(key, error)
            return False

    async def _refuse(self, key: Key, error: FairlaneError) -> None:
        self._refused_until[key] = time.monotonic() + _REFUSED_SECONDS
        log.warning(
            "the callback of fan-in %(fan_in)s is refused, retrying: %(error)s", {"fan_in": key[1], "error": error}
        )
        await self._store.fan_ins.refuse(key, str(error)[:_ERROR_CHARS])

    async def push(self, key: Key) -> None:
        """Push the callback of a fan-in and end it, in one transaction.

        Raises Conflict if another broker was faster, so that nothing is pushed twice.
        """
        tenant, id = key
        found = await self._store.fan_ins.get(tenant, id)
        if found is None:
            raise NotFound(f"fan-in {id!r:.80} was deleted")
        callback = await self._store.fan_ins.callback(found)
        parts = await self._store.fan_ins.parts(tenant, id, limit=found.total)
        queue = await self._store.queues.get(tenant, callback.queue)
        sealing = queue is not None and await self._store.codec.seals(queue.id, queue.options)
        end = await self._end(id, callback.data, parts, sealing=sealing)
        items = self._specs.of(tenant).admit_steps([callback.item(encode(end))])
        items = await self._priorities.apply(tenant, items, away=False)
        await self._transactor.transact(tenant, items, commit=partial(self._store.fan_ins.end, key))

    async def _end(self, id: str, data: msgspec.Raw, parts: Sequence[StoredPart], *, sealing: bool) -> FanInEnd:
        failures = [
            FanInFailure(
                part=one.part,
                queue=one.queue,
                transaction_id=one.transaction_id,
                status=one.status,  # type: ignore[arg-type]
                error=one.error and one.error[:_ERROR_CHARS],
            )
            for one in parts
            if one.status != "completed"
        ]
        results, size, left_out = list[msgspec.Raw | None](), 0, 0
        for one in parts:
            result = await self._store.fan_ins.result(one, sealing=sealing)
            if result is not None and (not result or size + len(result) > RESULTS_BYTES_MAX):
                result, left_out = None, left_out + 1
            size += len(result or b"")
            results.append(None if result is None else msgspec.Raw(result))
        return FanInEnd(
            fan_in=id,
            data=data,
            total=len(parts),
            results=results,
            failed=len(failures),
            failures=failures[:FAILURES_MAX],
            results_left_out=left_out,
        )
