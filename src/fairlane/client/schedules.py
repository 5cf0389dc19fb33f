"""Schedules: messages that the broker pushes at an interval or by cron."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.resource import ClientResource
from fairlane.errors import InvalidRequest
from fairlane.model.names import DEFAULT_PARTITION, check_name
from fairlane.model.payload import json_of
from fairlane.model.unique import Unique
from fairlane.runtime.durations import seconds_in
from fairlane.wire.base import encode
from fairlane.wire.schedules import Missed, Schedule, ScheduleDeleted, ScheduleOptions, ScheduleRun
from fairlane.wire.schedules import Schedules as Listed


class Schedules(ClientResource):
    async def define(
        self,
        name: str,
        queue: str,
        *,
        every: str | int | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Missed = "once",
        unique: Unique | None = None,
        unique_key: str | None = None,
        data: Any = None,
        partition: str = DEFAULT_PARTITION,
        type: str | None = None,
    ) -> Schedule:
        """Create or replace a schedule that pushes a message to a queue at every tick.

        The payload is `data`, or the schedule's name and tick if it is omitted. `every` is an interval in seconds or a
        text such as `5m`. `cron` is evaluated in `timezone`. Defining the same schedule again changes nothing.
        """
        if (every is None) == (cron is None):
            raise InvalidRequest("give exactly one of `every` and `cron`")
        options = ScheduleOptions(
            queue=check_name("queue", queue),
            partition=partition,
            data=msgspec.Raw(json_of("the data", data, encode)),
            type=type,
            every_seconds=seconds_in(every) if isinstance(every, str) else every,
            cron=cron,
            timezone=timezone,
            missed=missed,
            unique=unique,
            unique_key=unique_key,
        )
        return await self._call(Schedule, "POST", *_path(name), body=options)

    async def all(self) -> list[Schedule]:
        """Return all schedules by name."""
        return (await self._call(Listed, "GET", "schedules")).schedules

    async def get(self, name: str) -> Schedule:
        """Return a schedule. Raises NotFound."""
        return await self._call(Schedule, "GET", *_path(name))

    async def delete(self, name: str) -> bool:
        """Delete a schedule. Returns False if it does not exist."""
        return (await self._call(ScheduleDeleted, "DELETE", *_path(name))).deleted

    async def pause(self, name: str) -> Schedule:
        """Pause a schedule. Ticks during the pause do not count as missed."""
        return await self._call(Schedule, "POST", *_path(name, "pause"))

    async def resume(self, name: str) -> Schedule:
        """Resume a schedule from its next tick."""
        return await self._call(Schedule, "POST", *_path(name, "resume"))

    async def run(self, name: str) -> str:
        """Push the message of a schedule once, now. Returns its transactionId."""
        return (await self._call(ScheduleRun, "POST", *_path(name, "run"))).transaction_id


def _path(name: str, *verb: str) -> tuple[str, ...]:
    return "schedules", check_name("name", name), *verb
