"""Queues: configure, list, look at, delete."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from typing import Any

from fairlane.client.part import Part
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX
from fairlane.model.names import check_count, check_name, name_or_none
from fairlane.model.queue import QueueOptions, queue_options
from fairlane.wire import queues as wire
from fairlane.wire.leases import LeaseDetail, LeaseList, Utilisation


class Queues(Part):
    async def configure(
        self, queue: str, /, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> QueueOptions:
        """Make a queue or replace its options, which are the fields of `QueueOptions`; what is not named goes back to
        its default. The options in force."""
        name = check_name("queue", queue)
        body = wire.ConfigureBody(queue=name, namespace=namespace, task=task, options=_named(options))
        return _in_force(await self._ask(wire.OptionsSet, "POST", "configure", body=body))

    async def set_options(self, queue: str, /, **options: Any) -> QueueOptions:
        """Change some options of a queue; the others stay as they are. The options in force. Raises NotFound."""
        body = wire.OptionsBody(options=_named(options))
        return _in_force(await self._ask(wire.OptionsSet, "PATCH", *_path(queue), body=body))

    async def clear(self, queue: str, *, partition: str | None = None) -> int:
        """Take every message out of a queue or of one partition, read or not; how many. Raises NotFound."""
        query = {"partition": name_or_none("partition", partition)}
        path = ("queues", check_name("queue", queue), "clear")
        return (await self._ask(wire.ClearedQueue, "DELETE", *path, query=query)).cleared

    async def list(self, search: str = "", *, sort: str = "created", limit: int = 10_000) -> List[wire.ListedQueue]:
        """Queues whose name contains `search`, newest first; or by name, pending, oldest, rate or deadLetters."""
        query = {
            "search": search or None,
            "sort": sort,
            "limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX),
        }
        return (await self._ask(wire.QueueList, "GET", "resources", "queues", query=query)).queues

    async def show(self, queue: str, *, after: str = "", limit: int = 1000) -> wire.QueueDetail:
        """One queue with a page of its partitions, those whose name comes after `after`. Raises NotFound."""
        check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        query = {"after": name_or_none("after", after or None), "limit": limit}
        return await self._ask(wire.QueueDetail, "GET", *_path(queue), query=query)

    async def leases(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        ending_within: int | None = None,
        limit: int = 100,
    ) -> List[LeaseDetail]:
        """Live leases, the next to end first; with `ending_within` those that end in so many seconds unless they are
        renewed."""
        if ending_within is not None:
            check_count("ending_within", ending_within, least=1, most=LEASE_SECONDS_MAX)
        query = {
            "queue": name_or_none("queue", queue),
            "consumerGroup": name_or_none("group", group),
            "endingWithin": ending_within,
            "limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX),
        }
        return (await self._ask(LeaseList, "GET", "leases", query=query)).leases

    async def utilisation(self, queue: str) -> Utilisation:
        """How much of a queue its consumers hold, its depth, and what room is left. Raises NotFound."""
        return await self._ask(Utilisation, "GET", "queues", check_name("queue", queue), "utilisation")

    async def delete(self, queue: str) -> bool:
        """Delete a queue with all that is in it; whether it was there."""
        return (await self._ask(wire.DeletedQueue, "DELETE", *_path(queue))).existed


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """Checked queue options by their names on the wire."""
    queue_options(**options)
    return {wire.OPTION_NAMES[name]: value for name, value in options.items()}


def _in_force(answer: wire.OptionsSet) -> QueueOptions:
    return QueueOptions(
        **{name: answer.options[sent] for name, sent in wire.OPTION_NAMES.items() if sent in answer.options}
    )


def _path(queue: str) -> tuple[str, str, str]:
    return "resources", "queues", check_name("queue", queue)
