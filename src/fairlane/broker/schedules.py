"""Schedules: defined, paused, and pushed at every tick by whichever broker comes first."""

from __future__ import annotations

import logging
from builtins import list as List  # there is a verb of that name
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

import msgspec

from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.broker.push import Announcer
from fairlane.broker.transact import Transactor
from fairlane.errors import Conflict, FairlaneError, LaneLocked, LaneWaiting, NotFound, TransactionRefused, Unavailable
from fairlane.model.ids import uuid7
from fairlane.model.message import PushItem, check_payload
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.model.outcome import PushOutcome
from fairlane.runtime.service import Service
from fairlane.runtime.ticks import due, next_tick, ticks
from fairlane.store.contract.store import Store
from fairlane.store.families.schedules import Advance
from fairlane.store.families.schedules import Schedule as Stored
from fairlane.wire.base import made
from fairlane.wire.schedules import Schedule, ScheduleOptions, ScheduleRun

TICKS_MAX = 100
"""Pushed in one transaction; what a long outage left comes in several."""
_SCHEDULES_MAX = 100
_REFUSED_SECONDS = 5
_RUNS_SHOWN = 5

log = logging.getLogger(__name__)


class Schedules:
    """Schedules of a tenant, and the ticks of all; `admit` looks at messages as a push does; `pushed` is called when
    ticks were pushed, `wake` when there is something new to wait for."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        transactor: Transactor,
        compiled_specs: CompiledSpecs,
        announcer: Announcer,
        due: Service,
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._transactor = transactor
        self._compiled_specs = compiled_specs
        self._announcer = announcer
        self._due = due
        self._refused_until: dict[tuple[str, str], int] = {}
        self.ticks = 0

    async def define(self, name: str, options: ScheduleOptions) -> Schedule:
        """Make a schedule, or replace it. The same one again changes nothing."""
        check_name("name", name)
        check_payload(bytes(options.check().data))
        next_at = next_tick(options, await self._store.now())
        made = Stored(tenant=self._tenant, name=name, options=options, revision=uuid7(), next_at=next_at)
        saved = await self._store.schedules.put(made)
        self._due.wake()
        return _shown(saved)

    async def get(self, name: str) -> Schedule:
        return _shown(await self._existing(name))

    async def list(self) -> List[Schedule]:
        """By name."""
        return [_shown(one) for one in await self._store.schedules.list(self._tenant)]

    async def delete(self, name: str) -> bool:
        return await self._store.schedules.delete(self._tenant, check_name("name", name))

    async def pause(self, name: str) -> Schedule:
        """Ticks of a paused schedule are neither pushed nor missed."""
        return await self._turn(name, None)

    async def resume(self, name: str) -> Schedule:
        found = await self._existing(name)
        if found.next_at is not None:
            return _shown(found)
        resumed = await self._turn(name, next_tick(found.options, await self._store.now()))
        self._due.wake()
        return resumed

    async def _existing(self, name: str) -> Stored:
        found = await self._store.schedules.get(self._tenant, check_name("name", name))
        if found is None:
            raise NotFound(f"there is no schedule {name!r:.80}")
        return found

    async def _turn(self, name: str, next_at: int | None) -> Schedule:
        turned = await self._store.schedules.turn(self._tenant, check_name("name", name), uuid7(), next_at)
        if turned is None:
            raise NotFound(f"there is no schedule {name!r:.80}")
        return _shown(turned)

    async def run(self, name: str) -> ScheduleRun:
        """Push its message once, now; its ticks go on as they were."""
        found = await self._existing(name)
        item = _item(found, await self._store.now(), f"{name}@now.{uuid7()}")
        [outcome] = await self._transactor.transact(
            self._tenant, self._compiled_specs.admit_steps(self._tenant, [item])
        )
        self._announcer.flushed()
        assert isinstance(outcome, PushOutcome)
        return ScheduleRun(
            name=name,
            queue=found.options.queue,
            message_id=outcome.message_id,
            transaction_id=outcome.transaction_id,
        )

    async def next_in(self) -> int | None:
        """Microseconds until the next tick of any schedule, 0 or less if one is due."""
        return await self._store.schedules.next_in()

    async def push_due(self) -> int:
        """Push the ticks that are due; how many. A schedule whose queue takes nothing now holds up no other."""
        now = await self._store.now()
        count = 0
        for schedule in await self._store.schedules.due(limit=_SCHEDULES_MAX):
            key = schedule.tenant, schedule.name
            if self._refused_until.get(key, 0) > now:
                continue
            try:
                count += await self._push(schedule, now)
            except FairlaneError as error:
                if isinstance(error, Unavailable) and not isinstance(error, LaneWaiting | LaneLocked):
                    raise
                if not isinstance(error, Conflict) or isinstance(error, TransactionRefused):
                    self._refuse(key, now, error)
            else:
                self._refused_until.pop(key, None)
        if count:
            self.ticks += count
            self._announcer.flushed()
        return count

    def _refuse(self, key: tuple[str, str], now: int, error: FairlaneError) -> None:
        if key not in self._refused_until:
            log.warning(
                "schedule %(schedule)r cannot push, its message is refused: %(error)s",
                {"schedule": key[1], "error": error},
            )
        self._refused_until[key] = now + _REFUSED_SECONDS * 1_000_000

    async def _push(self, schedule: Stored, now: int) -> int:
        """The ticks of one schedule and its step to the next, in one transaction: another broker that was quicker
        makes it a Conflict, and nothing happens twice."""
        assert schedule.next_at is not None
        passed, next_at = due(schedule.options, schedule.next_at, now, most=TICKS_MAX)
        advance = Advance(
            tenant=schedule.tenant,
            name=schedule.name,
            before=schedule.revision,
            revision=uuid7(),
            next_at=next_at,
        )
        pushes = [_item(schedule, at, f"{schedule.name}@{moment(at)}") for at in passed]
        if not pushes:
            await self._store.schedules.advance(advance)
            return 0
        items = self._compiled_specs.admit_steps(schedule.tenant, pushes)
        await self._transactor.transact(schedule.tenant, items, commit=partial(self._store.schedules.commit, advance))
        return len(items)


def moment(at: int) -> str:
    """A tick as text, in UTC to the second."""
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at):%Y-%m-%dT%H:%M:%SZ}"


def _shown(schedule: Stored) -> Schedule:
    at, options = schedule.next_at, schedule.options
    runs = [] if at is None else [at, *islice(ticks(options, at), _RUNS_SHOWN - 1)]
    return made(Schedule, schedule, options, next_runs=[Moment(at) for at in runs])


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
        headers={"schedule": schedule.name, "tick": moment(at)},
    )
