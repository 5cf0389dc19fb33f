"""Schedules: what the broker pushes again and again."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import Schedule
from fairlane.client.wire import decode, encode
from fairlane.errors import InvalidRequest
from fairlane.model.names import DEFAULT_PARTITION, check_name
from fairlane.runtime.durations import seconds_in


class _Listed(msgspec.Struct):
    schedules: list[Schedule]


class _Deleted(msgspec.Struct):
    deleted: bool = False


class _Run(msgspec.Struct, rename="camel"):
    transaction_id: str


class Schedules(Family):
    async def define_schedule(
        self,
        name: str,
        queue: str,
        *,
        every: str | int | None = None,
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Literal["skip", "once", "all"] = "once",
        data: Any = None,
        partition: str = DEFAULT_PARTITION,
        type: str | None = None,
    ) -> Schedule:
        """Let the broker push `data` (or the tick) to a queue at every tick: `every` so many seconds, also written
        like `5m`, or by `cron` and the clocks of a time zone. One that has the name is replaced; the same one
        again changes nothing."""
        if (every is None) == (cron is None):
            raise InvalidRequest("say when with `every` or with `cron`, and not with both")
        body = {
            "queue": check_name("queue", queue),
            "partition": partition,
            "data": data,
            "type": type,
            "everySeconds": seconds_in(every) if isinstance(every, str) else every,
            "cron": cron,
            "timezone": timezone,
            "missed": missed,
        }
        return decode(await self._transport.ask("POST", _path(name), body=encode(body)), Schedule)

    async def schedules(self) -> list[Schedule]:
        """All, by name."""
        return decode(await self._transport.ask("GET", path_of("schedules")), _Listed).schedules

    async def schedule(self, name: str) -> Schedule:
        """Raises NotFound."""
        return decode(await self._transport.ask("GET", _path(name)), Schedule)

    async def delete_schedule(self, name: str) -> bool:
        """False if it was not there."""
        return decode(await self._transport.ask("DELETE", _path(name)), _Deleted).deleted

    async def pause_schedule(self, name: str) -> Schedule:
        """Its ticks are neither pushed nor missed until it is resumed."""
        return decode(await self._transport.ask("POST", _path(name, "pause")), Schedule)

    async def resume_schedule(self, name: str) -> Schedule:
        """Let it go on with its next tick."""
        return decode(await self._transport.ask("POST", _path(name, "resume")), Schedule)

    async def run_schedule(self, name: str) -> str:
        """Push its message once, now; the transactionId."""
        return decode(await self._transport.ask("POST", _path(name, "run")), _Run).transaction_id


def _path(name: str, *verb: str) -> str:
    return path_of("schedules", check_name("name", name), *verb)
