"""Queues: configure, list, inspect, clear and delete."""

from __future__ import annotations

from typing import Any

from fairlane.client.resource import ClientResource
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX
from fairlane.model.names import check_count, check_name, count_or_none, name_or_none
from fairlane.model.queue import QueueOptions, queue_options
from fairlane.wire import queues as wire
from fairlane.wire.leases import LeaseDetail, LeaseList, Utilisation


class Queues(ClientResource):
    async def configure(
        self, queue: str, /, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> QueueOptions:
        """Create a queue or replace all its options (see `QueueOptions`).

        Returns the options in force. Options that are not given get their defaults.
        """
        name = check_name("queue", queue)
        body = wire.ConfigureBody(queue=name, namespace=namespace, task=task, options=_named(options))
        return _in_force(await self._call(wire.OptionsSet, "POST", "configure", body=body))

    async def set_options(self, queue: str, /, **options: Any) -> QueueOptions:
        """Change some options of a queue and keep the others. Returns all options in force. Raises NotFound."""
        body = wire.OptionsBody(options=_named(options))
        return _in_force(await self._call(wire.OptionsSet, "PATCH", *_path(queue), body=body))

    async def clear(self, queue: str, *, partition: str | None = None) -> int:
        """Delete every message of a queue or of one partition. Returns the number deleted. Raises NotFound."""
        query = {"partition": name_or_none("partition", partition)}
        path = ("queues", check_name("queue", queue), "clear")
        return (await self._call(wire.ClearedQueue, "DELETE", *path, query=query)).cleared

    async def all(self, search: str = "", *, sort: str = "created", limit: int = 10_000) -> list[wire.ListedQueue]:
        """Return the queues whose name contains `search`, newest first.

        `sort` can also be name, pending, oldest, rate or deadLetters.
        """
        query = {
            "search": search or None,
            "sort": sort,
            "limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX),
        }
        return (await self._call(wire.QueueList, "GET", "resources", "queues", query=query)).queues

    async def show(self, queue: str, *, after: str = "", limit: int = 1000) -> wire.QueueDetail:
        """Return a queue with a page of its partitions, those whose name follows `after`. Raises NotFound."""
        check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        query = {"after": name_or_none("after", after or None), "limit": limit}
        return await self._call(wire.QueueDetail, "GET", *_path(queue), query=query)

    async def leases(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        ending_within: int | None = None,
        limit: int = 100,
    ) -> list[LeaseDetail]:
        """Return live leases, the next to expire first.

        `ending_within` selects those that expire within this many seconds unless renewed.
        """
        count_or_none("ending_within", ending_within, least=1, most=LEASE_SECONDS_MAX)
        query = {
            "queue": name_or_none("queue", queue),
            "consumerGroup": name_or_none("group", group),
            "endingWithin": ending_within,
            "limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX),
        }
        return (await self._call(LeaseList, "GET", "leases", query=query)).leases

    async def utilisation(self, queue: str) -> Utilisation:
        """Return the depth of a queue, the part that is leased, and the free capacity. Raises NotFound."""
        return await self._call(Utilisation, "GET", "queues", check_name("queue", queue), "utilisation")

    async def delete(self, queue: str) -> bool:
        """Delete a queue and all its messages. Returns False if it does not exist."""
        return (await self._call(wire.DeletedQueue, "DELETE", *_path(queue))).existed


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """Check queue options and return them under their wire names."""
    queue_options(**options)
    return {wire.OPTION_NAMES[name]: value for name, value in options.items()}


def _in_force(answer: wire.OptionsSet) -> QueueOptions:
    return QueueOptions(
        **{name: answer.options[sent] for name, sent in wire.OPTION_NAMES.items() if sent in answer.options}
    )


def _path(queue: str) -> tuple[str, str, str]:
    return "resources", "queues", check_name("queue", queue)
