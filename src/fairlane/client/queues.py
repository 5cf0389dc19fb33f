"""Queues: configure, list, look at, delete."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import LeaseDetail, QueueDetail, QueueSummary, Utilisation
from fairlane.client.wire import ConfigureBody, decode, encode, options_in, options_out
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX
from fairlane.model.names import check_count, check_name
from fairlane.model.queue import QueueOptions


class _Configured(msgspec.Struct):
    options: dict[str, Any]


class _Options(msgspec.Struct):
    options: dict[str, Any]


class _Cleared(msgspec.Struct):
    cleared: int = 0


class _Listed(msgspec.Struct):
    queues: list[QueueSummary]


class _Leases(msgspec.Struct):
    leases: list[LeaseDetail]


class _Deleted(msgspec.Struct):
    existed: bool = True


class Queues(Family):
    async def configure(
        self, queue: str, /, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> QueueOptions:
        """Make a queue or replace its options, which are the fields of `QueueOptions`; what is not named goes back to
        its default. The options in force."""
        body = encode(ConfigureBody(check_name("queue", queue), namespace, task, options_out(options)))
        return _in_force(await self._transport.ask("POST", path_of("configure"), body=body))

    async def set_options(self, queue: str, /, **options: Any) -> QueueOptions:
        """Change some options of a queue; the others stay as they are. The options in force. Raises NotFound."""
        body = encode(_Options(options_out(options)))
        return _in_force(await self._transport.ask("PATCH", _path(queue), body=body))

    async def clear(self, queue: str, *, partition: str | None = None) -> int:
        """Take every message out of a queue or of one partition, read or not; how many. Raises NotFound."""
        query = {} if partition is None else {"partition": check_name("partition", partition)}
        path = path_of("queues", check_name("queue", queue), "clear")
        return decode(await self._transport.ask("DELETE", path, query=query), _Cleared).cleared

    async def queues(self) -> list[QueueSummary]:
        """Every queue, newest first."""
        return decode(await self._transport.ask("GET", path_of("resources", "queues")), _Listed).queues

    async def queue(self, queue: str, *, after: str = "", limit: int = 1000) -> QueueDetail:
        """One queue with a page of its partitions, those whose name comes after `after`. Raises NotFound."""
        query: dict[str, str | int] = {"limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)}
        if after:
            query["after"] = check_name("after", after)
        return decode(await self._transport.ask("GET", _path(queue), query=query), QueueDetail)

    async def leases(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        ending_within: int | None = None,
        limit: int = 100,
    ) -> list[LeaseDetail]:
        """Live leases, the next to end first; with `ending_within` those that end in so many seconds unless they are
        renewed."""
        query: dict[str, str | int] = {"limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)}
        if queue is not None:
            query["queue"] = check_name("queue", queue)
        if group is not None:
            query["consumerGroup"] = check_name("group", group)
        if ending_within is not None:
            query["endingWithin"] = check_count("ending_within", ending_within, least=1, most=LEASE_SECONDS_MAX)
        return decode(await self._transport.ask("GET", path_of("leases"), query=query), _Leases).leases

    async def utilisation(self, queue: str) -> Utilisation:
        """How much of a queue its consumers hold, its depth, and what room is left. Raises NotFound."""
        path = path_of("queues", check_name("queue", queue), "utilisation")
        return decode(await self._transport.ask("GET", path), Utilisation)

    async def delete_queue(self, queue: str) -> bool:
        """Delete a queue with all that is in it; whether it was there."""
        return decode(await self._transport.ask("DELETE", _path(queue)), _Deleted).existed


def _in_force(answer: bytes) -> QueueOptions:
    known = set(QueueOptions.__struct_fields__)
    options = options_in(decode(answer, _Configured).options)
    return QueueOptions(**{name: value for name, value in options.items() if name in known})


def _path(queue: str) -> str:
    return path_of("resources", "queues", check_name("queue", queue))
