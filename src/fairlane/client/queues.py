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
        configured = decode(await self._transport.ask("POST", path_of("configure"), body=body), _Configured)
        known = set(QueueOptions.__struct_fields__)
        return QueueOptions(**{name: value for name, value in options_in(configured.options).items() if name in known})

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


def _path(queue: str) -> str:
    return path_of("resources", "queues", check_name("queue", queue))
