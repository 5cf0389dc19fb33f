"""Dead letters: inspect, replay and purge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import msgspec

from fairlane.client.resource import ClientResource
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.limits import BATCH_ITEMS_MAX, ERROR_CHARS_MAX
from fairlane.model.names import check_count, check_name, name_or_none
from fairlane.model.payload import json_of
from fairlane.wire.base import encode
from fairlane.wire.dead_letters import (
    DeadLetter,
    DeadLetterError,
    DeadLetterErrors,
    DeadLetterList,
    PurgedLetters,
    ReplayedLetters,
)

_ERRORS_MAX = 10_000


class DeadLetterFilters(TypedDict, total=False):
    """Filters that select dead letters of a queue. Without a filter, all of them are selected."""

    group: str | None
    partition: str | None
    error: str | None
    """Text that the last error must contain."""


class DeadLetters(ClientResource):
    async def page(self, queue: str, *, limit: int = 100, **filters: Unpack[DeadLetterFilters]) -> list[DeadLetter]:
        """Return dead letters without tracebacks, latest failure first."""
        query = _where(queue, **filters) | {"limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)}
        return (await self._call(DeadLetterList, "GET", "dlq", query=query)).messages

    async def get(self, queue: str, id: str) -> DeadLetter:
        """Return one dead letter with its payload and the tracebacks of its errors. Raises NotFound."""
        query = {"queue": check_name("queue", queue), "ids": check_name("id", id), "tracebacks": "true"}
        found = (await self._call(DeadLetterList, "GET", "dlq", query=query)).messages
        if not found:
            raise NotFound(f"queue {queue!r:.80} has no dead letter {id!r:.80}")
        return found[0]

    async def count(self, queue: str, **filters: Unpack[DeadLetterFilters]) -> int:
        """Return the number of dead letters that were not replayed, all or those that match."""
        query = _where(queue, **filters) | {"limit": 1, "replayed": "false"}
        return (await self._call(DeadLetterList, "GET", "dlq", query=query)).total

    async def replay(
        self,
        queue: str,
        *,
        ids: Sequence[str] | None = None,
        limit: int | None = None,
        data: Any = msgspec.UNSET,
        **filters: Unpack[DeadLetterFilters],
    ) -> list[tuple[str, str]]:
        """Push dead letters again and return pairs of dead letter id and new message id.

        Replays all, or those that match, at most `limit`; each is replayed once. `data` replaces the payload of the
        single letter in `ids`.
        """
        body = _where(queue, **filters) | {"ids": None if ids is None else _checked(ids)}
        if data is not msgspec.UNSET:
            body["data"] = msgspec.Raw(json_of("the data", data, encode))
        if limit is not None:
            body["limit"] = check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        answer = await self._call(ReplayedLetters, "POST", "dlq", "replay", body=body)
        return [(one.id, one.message_id) for one in answer.replayed]

    async def purge(self, queue: str, *, ids: Sequence[str] | None = None, **filters: Unpack[DeadLetterFilters]) -> int:
        """Delete dead letters permanently, all or those that match. Returns the number deleted."""
        query = _where(queue, **filters) | {"ids": None if ids is None else ",".join(_checked(ids))}
        return (await self._call(PurgedLetters, "DELETE", "dlq", query=query)).purged

    async def errors(self, queue: str | None = None) -> list[DeadLetterError]:
        """Count dead letters by queue, group and error, the most frequent first. Returns at most 10,000 errors."""
        query = {"queue": name_or_none("queue", queue), "limit": _ERRORS_MAX}
        return (await self._call(DeadLetterErrors, "GET", "dlq", "errors", query=query)).errors


def _where(
    queue: str, *, group: str | None = None, partition: str | None = None, error: str | None = None
) -> dict[str, Any]:
    return {
        "queue": check_name("queue", queue),
        "consumerGroup": name_or_none("group", group),
        "partition": name_or_none("partition", partition),
        "error": name_or_none("error", error, chars_max=ERROR_CHARS_MAX),
    }


def _checked(ids: Sequence[str]) -> list[str]:
    """Raise InvalidRequest for an empty list of ids, which is probably a mistake. None selects all dead letters."""
    if isinstance(ids, str) or not ids:
        raise InvalidRequest("ids must be a list with at least one id of a dead letter")
    return [check_name("id", id) for id in ids]
