"""Schedules: define, pause, and push at every tick, by whichever broker comes first."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.cells import missing_cells
from fairlane.broker.compiled_specs import AllSpecs
from fairlane.broker.paging import page_of
from fairlane.broker.push import Announcer
from fairlane.broker.resource import Resource
from fairlane.broker.results import Results
from fairlane.broker.transact import Transactor
from fairlane.errors import (
    Conflict,
    ExpressionFailed,
    FairlaneError,
    InvalidRequest,
    LaneLocked,
    LaneWaiting,
    NotFound,
    PayloadInvalid,
    QueueElsewhere,
    StoreCorrupt,
    TransactionRefused,
    Unavailable,
)
from fairlane.model.ids import uuid7
from fairlane.model.limits import NEVER_AT
from fairlane.model.message import PushItem, check_payload
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import check_name
from fairlane.model.outcome import PushOutcome
from fairlane.model.principal import ANYBODY, Principal
from fairlane.runtime.ticks import due, next_tick, ticks
from fairlane.store.contract.store import Store
from fairlane.store.families.schedules import Advance
from fairlane.store.families.schedules import Schedule as Stored
from fairlane.wire.schedules import LastRun, Schedule, ScheduleListQuery, ScheduleOptions, ScheduleRun
from fairlane.wire.schedules import Schedules as SchedulePage

if TYPE_CHECKING:
    from fairlane.broker.engine import TenantScope

TICKS_MAX = 100
"""Ticks pushed in one transaction. A long outage needs several."""
_SCHEDULES_MAX = 100
_REFUSED_SECONDS = 5
_FORGET_SECONDS = 60
"""Time after which a refused schedule that is not tried any more is forgotten: it was deleted."""
_RUNS_SHOWN = 5

_OF_ONE = LaneWaiting | LaneLocked | QueueElsewhere | StoreCorrupt
"""Errors of the store that concern one schedule. After others, all of them wait, unless a cell does not answer."""

log = logging.getLogger(__name__)


class Schedules(Resource):
    """Schedules of a tenant."""

    def __init__(self, scope: TenantScope, results: Results) -> None:
        super().__init__(scope)
        self._results = results

    async def define(self, name: str, options: ScheduleOptions) -> Schedule:
        """Create or replace a schedule. Repeating the same definition changes nothing."""
        check_name("name", name)
        check_payload(bytes(options.check().data))
        _check_numbers(options.data)
        next_at = next_tick(options, await self._store.now())
        tenants = self._engine.tenants
        if tenants.limits(self._tenant, "schedules") and not await self._store.schedules.get(self._tenant, name):
            await tenants.check(self._tenant, "schedules", 1)
        await self._scope.quota.check_others()
        made = Stored(tenant=self._tenant, name=name, options=options, revision=uuid7(), next_at=next_at)
        self._scope.compiled_specs.admit_steps([_item(made, next_at, name)])
        saved = await self._store.schedules.put(made)
        self._engine.scheduler_loop.wake()
        return self._shown(saved)

    async def get(self, name: str) -> Schedule:
        """Return a schedule with the state of its last run. Raises NotFound."""
        found = await self._existing(name)
        return msgspec.structs.replace(self._shown(found), last_run=await self._last_run(found))

    async def all(self) -> list[Schedule]:
        """Return all schedules with the state of their last runs, by name."""
        return await self._with_last_runs(await self._store.schedules.all(self._tenant))

    async def page(self, query: ScheduleListQuery, caller: Principal = ANYBODY) -> SchedulePage:
        """Return a page of the schedules that the caller may see, each with its next ticks."""
        some = await self._store.schedules.all(self._tenant)
        shown, total = page_of(
            [one for one in some if caller.allows("status", one.options.queue)],
            query,
            text=lambda one: f"{one.name} {one.options.queue}",
            up={
                "name": lambda one: one.name,
                "queue": lambda one: (one.options.queue, one.name),
                "next": lambda one: (NEVER_AT if one.next_at is None else one.next_at, one.name),
            },
            down={},
        )
        return SchedulePage(schedules=await self._with_last_runs(shown), total=total)

    async def standing(self, late_before: int) -> tuple[int, int, int]:
        """Return the numbers of active, paused and late schedules. Late ones should have ticked before this time."""
        some = await self._store.schedules.all(self._tenant)
        paused = sum(one.paused_at is not None for one in some)
        late = sum(one.paused_at is None and one.next_at is not None and one.next_at < late_before for one in some)
        return len(some) - paused, paused, late

    async def late(self, before: int, *, limit: int) -> list[Schedule]:
        """Return schedules that should have ticked before this time and did not, latest first."""
        some = await self._store.schedules.due(limit=_SCHEDULES_MAX)
        late = [one for one in some if one.tenant == self._tenant and one.next_at is not None and one.next_at < before]
        return [self._shown(one) for one in late[:limit]]

    async def delete(self, name: str) -> bool:
        deleted = await self._store.schedules.delete(self._tenant, check_name("name", name))
        self._engine.tenants.recount(self._tenant)
        return deleted

    async def pause(self, name: str) -> Schedule:
        """Pause a schedule. Its ticks are neither pushed nor missed."""
        return await self._set_next(name, None)

    async def resume(self, name: str) -> Schedule:
        found = await self._existing(name)
        if found.next_at is not None:
            return self._shown(found)
        resumed = await self._set_next(name, next_tick(found.options, await self._store.now()))
        self._engine.scheduler_loop.wake()
        return resumed

    def _shown(self, schedule: Stored) -> Schedule:
        at, options = schedule.next_at, schedule.options
        runs = [] if at is None else [at, *islice(ticks(options, at), _RUNS_SHOWN - 1)]
        try:
            self._scope.compiled_specs.admit_steps([_item(schedule, at or 0, schedule.name)])
            refused = None
        except (PayloadInvalid, ExpressionFailed) as error:
            refused = str(error)
        return Schedule(
            **msgspec.structs.asdict(options),
            name=schedule.name,
            paused_at=moment_or_none(schedule.paused_at),
            next_at=moment_or_none(schedule.next_at),
            next_runs=[Moment(at) for at in runs],
            refused=refused,
        )

    async def _with_last_runs(self, some: Sequence[Stored]) -> list[Schedule]:
        return [msgspec.structs.replace(self._shown(one), last_run=await self._last_run(one)) for one in some]

    async def _last_run(self, schedule: Stored) -> LastRun | None:
        """Return the last tick of a schedule and the state of its message. None before the first tick."""
        if schedule.last_at is None or schedule.last_queue is None or schedule.last_partition is None:
            return None
        id = _tick_id(schedule.name, schedule.last_at)
        try:
            found = await self._results.get(schedule.last_queue, id, partition=schedule.last_partition)
        except NotFound:
            return LastRun(at=Moment(schedule.last_at), transaction_id=id)
        return LastRun(
            at=Moment(schedule.last_at), transaction_id=id, partition_id=found.partition_id, status=found.status
        )

    async def _existing(self, name: str) -> Stored:
        found = await self._store.schedules.get(self._tenant, check_name("name", name))
        if found is None:
            raise NotFound(f"there is no schedule {name!r:.80}")
        return found

    async def _set_next(self, name: str, next_at: int | None) -> Schedule:
        changed = await self._store.schedules.set_next(self._tenant, check_name("name", name), uuid7(), next_at)
        if changed is None:
            raise NotFound(f"there is no schedule {name!r:.80}")
        return self._shown(changed)

    async def run(self, name: str) -> ScheduleRun:
        """Push its message once, now. Its ticks are not affected."""
        found = await self._existing(name)
        item = _item(found, await self._store.now(), f"{name}@now.{uuid7()}")
        steps = self._scope.compiled_specs.admit_steps([item])
        [outcome] = await self._engine.transactor.transact(self._tenant, steps)
        self._engine.announcer.wake_polls()
        assert isinstance(outcome, PushOutcome)
        return ScheduleRun(
            name=name,
            queue=found.options.queue,
            message_id=outcome.message_id,
            transaction_id=outcome.transaction_id,
        )


class Ticks:
    """The ticks of all schedules, of all tenants."""

    def __init__(self, store: Store, transactor: Transactor, specs: AllSpecs, announcer: Announcer) -> None:
        self._store = store
        self._transactor = transactor
        self._specs = specs
        self._announcer = announcer
        self._refused_until: dict[tuple[str, str], int] = {}

    async def push_due(self) -> int:
        """Push due ticks. Returns their number. A schedule whose queue refuses messages does not block others."""
        now = await self._store.now()
        count = 0
        kept_since = now - _FORGET_SECONDS * 1_000_000
        self._refused_until = {key: until for key, until in self._refused_until.items() if until > kept_since}
        waiting = {key for key, until in self._refused_until.items() if until > now}
        for schedule in await self._store.schedules.due(limit=_SCHEDULES_MAX + len(waiting)):
            key = schedule.tenant, schedule.name
            if key in waiting:
                continue
            try:
                count += await self._push(schedule, now)
            except FairlaneError as error:
                if isinstance(error, Unavailable) and not (isinstance(error, _OF_ONE) or missing_cells(self._store)):
                    raise
                if not isinstance(error, Conflict) or isinstance(error, TransactionRefused):
                    self._refuse(key, now, error)
            else:
                self._refused_until.pop(key, None)
        if count:
            self._announcer.wake_polls()
        return count

    def _refuse(self, key: tuple[str, str], now: int, error: FairlaneError) -> None:
        if key not in self._refused_until:
            log.warning(
                "schedule %(schedule)r cannot push, its message is refused: %(error)s",
                {"schedule": key[1], "error": error},
            )
        self._refused_until[key] = now + _REFUSED_SECONDS * 1_000_000

    async def _push(self, schedule: Stored, now: int) -> int:
        """Push the ticks of one schedule and move it to the next, in one transaction.

        Raises Conflict if another broker was faster, so that nothing happens twice.
        """
        assert schedule.next_at is not None
        passed, next_at = due(schedule.options, schedule.next_at, now, most=TICKS_MAX)
        advance = Advance(
            tenant=schedule.tenant,
            name=schedule.name,
            before=schedule.revision,
            revision=uuid7(),
            next_at=next_at,
            last_at=passed[-1] if passed else None,
            last_queue=schedule.options.queue if passed else None,
            last_partition=schedule.options.partition if passed else None,
        )
        pushes = [_item(schedule, at, _tick_id(schedule.name, at)) for at in passed]
        if not pushes:
            await self._store.schedules.advance(advance)
            return 0
        items = self._specs.of(schedule.tenant).admit_steps(pushes)
        await self._transactor.transact(schedule.tenant, items, commit=partial(self._store.schedules.commit, advance))
        return len(items)


def moment(at: int) -> str:
    """Return a tick as text, in UTC to the second."""
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at):%Y-%m-%dT%H:%M:%SZ}"


def _tick_id(name: str, at: int) -> str:
    """Return the transactionId of the message of a tick."""
    return f"{name}@{moment(at)}"


def _item(schedule: Stored, at: int, transaction_id: str) -> PushItem:
    options = schedule.options
    data = bytes(options.data)
    if data == b"null":
        data = msgspec.json.encode({"schedule": schedule.name, "tick": moment(at)})
    return PushItem(
        queue=options.queue,
        payload=data,
        partition=options.partition,
        transaction_id=transaction_id,
        type=options.type,
        unique=options.unique,
        unique_key=(options.unique_key or f"schedule {schedule.name}") if options.unique else None,
        headers={"schedule": schedule.name, "tick": moment(at)},
    )


def _check_numbers(data: msgspec.Raw) -> None:
    """Raise InvalidRequest if a spec could not name this data, because a number of it is out of range."""
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise InvalidRequest("data: a number is out of range") from None
