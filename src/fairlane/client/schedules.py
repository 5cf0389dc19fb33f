"""Schedules: what the broker pushes again and again."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from typing import Any

import msgspec

from fairlane.client.part import Part
from fairlane.errors import InvalidRequest
from fairlane.model.names import DEFAULT_PARTITION, check_name
from fairlane.model.payload import json_of
from fairlane.runtime.durations import seconds_in
from fairlane.wire.base import encode
from fairlane.wire.schedules import Missed, Schedule, ScheduleDeleted, ScheduleOptions, ScheduleRun
from fairlane.wire.schedules import Schedules as Listed


class Schedules(Part):
    async def define(
        self,
        name: str,
        queue: str,
        *,
        every: str | int | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Missed = "once",
        data: Any = None,
        partition: str = DEFAULT_PARTITION,
        type: str | None = None,
    ) -> Schedule:
        """Let the broker push `data` (or the tick) to a queue at every tick: `every` so many seconds, also written
        like `5m`, or by `cron` and the clocks of a time zone. One that has the name is replaced; the same one
        again changes nothing."""
        if (every is None) == (cron is None):
            raise InvalidRequest("say when with `every` or with `cron`, and not with both")
        options = ScheduleOptions(
            queue=check_name("queue", queue),
            partition=partition,
            data=msgspec.Raw(json_of("the data", data, encode)),
            type=type,
            every_seconds=seconds_in(every) if isinstance(every, str) else every,
            cron=cron,
            timezone=timezone,
            missed=missed,
        )
        return await self._ask(Schedule, "POST", *_path(name), body=options)

    async def list(self) -> List[Schedule]:
        """All, by name."""
        return (await self._ask(Listed, "GET", "schedules")).schedules

    async def get(self, name: str) -> Schedule:
        """Raises NotFound."""
        return await self._ask(Schedule, "GET", *_path(name))

    async def delete(self, name: str) -> bool:
        """False if it was not there."""
        return (await self._ask(ScheduleDeleted, "DELETE", *_path(name))).deleted

    async def pause(self, name: str) -> Schedule:
        """Its ticks are neither pushed nor missed until it is resumed."""
        return await self._ask(Schedule, "POST", *_path(name, "pause"))

    async def resume(self, name: str) -> Schedule:
        """Let it go on with its next tick."""
        return await self._ask(Schedule, "POST", *_path(name, "resume"))

    async def run(self, name: str) -> str:
        """Push its message once, now; the transactionId."""
        return (await self._ask(ScheduleRun, "POST", *_path(name, "run"))).transaction_id


def _path(name: str, *verb: str) -> tuple[str, ...]:
    return "schedules", check_name("name", name), *verb
