"""Dead letters: look at them, replay them, purge them."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from collections.abc import Sequence
from typing import Any

import msgspec

from fairlane.client.part import Part
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


class DeadLetters(Part):
    async def list(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        error: str | None = None,
        limit: int = 100,
    ) -> List[DeadLetter]:
        """Messages that were given up on, latest failure first; `error` is part of the last error's text."""
        limited = {"limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)}
        query = _where(queue, group, partition, error) | limited
        return (await self._ask(DeadLetterList, "GET", "dlq", query=query)).messages

    async def get(self, queue: str, id: str) -> DeadLetter:
        """One dead letter, whole. Raises NotFound."""
        query = {"queue": check_name("queue", queue), "ids": check_name("id", id)}
        found = (await self._ask(DeadLetterList, "GET", "dlq", query=query)).messages
        if not found:
            raise NotFound(f"queue {queue!r:.80} has no dead letter {id!r:.80}")
        return found[0]

    async def replay(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        error: str | None = None,
        ids: Sequence[str] | None = None,
        limit: int | None = None,
        data: Any = msgspec.UNSET,
    ) -> List[tuple[str, str]]:
        """Push dead letters again, all or those chosen, at most `limit`; (dead letter, new message) ids. Each is
        replayed once. `data` is pushed in place of what the one that `ids` names had."""
        body = _where(queue, group, partition, error) | {"ids": None if ids is None else _checked(ids)}
        if data is not msgspec.UNSET:
            body["data"] = msgspec.Raw(json_of("the data", data, encode))
        if limit is not None:
            body["limit"] = check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        answer = await self._ask(ReplayedLetters, "POST", "dlq", "replay", body=body)
        return [(one.id, one.message_id) for one in answer.replayed]

    async def purge(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        error: str | None = None,
        ids: Sequence[str] | None = None,
    ) -> int:
        """Delete dead letters for good, all or those chosen; how many."""
        query = _where(queue, group, partition, error) | {"ids": None if ids is None else ",".join(_checked(ids))}
        return (await self._ask(PurgedLetters, "DELETE", "dlq", query=query)).purged

    async def errors(self, queue: str | None = None) -> List[DeadLetterError]:
        """Dead letters by queue, group and error, of a queue or of all, the most frequent first."""
        query = {"queue": name_or_none("queue", queue)}
        return (await self._ask(DeadLetterErrors, "GET", "dlq", "errors", query=query)).errors


def _where(queue: str, group: str | None, partition: str | None, error: str | None) -> dict[str, Any]:
    return {
        "queue": check_name("queue", queue),
        "consumerGroup": name_or_none("group", group),
        "partition": name_or_none("partition", partition),
        "error": None if error is None else check_name("error", error, chars_max=ERROR_CHARS_MAX),
    }


def _checked(ids: Sequence[str]) -> List[str]:
    """Naming none is a mistake: to mean all, name no ids at all."""
    if isinstance(ids, str) or not ids:
        raise InvalidRequest("ids are a list of dead letter ids with at least one in it")
    return [check_name("id", id) for id in ids]
