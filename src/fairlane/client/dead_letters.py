"""Dead letters: look at them, replay them, purge them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import DeadLetter
from fairlane.client.wire import decode
from fairlane.errors import InvalidRequest
from fairlane.model.limits import BATCH_ITEMS_MAX, ERROR_CHARS_MAX
from fairlane.model.names import check_count, check_name
from fairlane.wire.base import encode

_DLQ = path_of("dlq")


class _Listed(msgspec.Struct):
    messages: list[DeadLetter]


class _Pair(msgspec.Struct, rename="camel"):
    id: str
    message_id: str


class _Replayed(msgspec.Struct):
    replayed: list[_Pair]


class _Purged(msgspec.Struct):
    purged: int


class DeadLetters(Family):
    async def dead_letters(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        error: str | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Messages that were given up on, latest failure first; `error` is part of the last error's text."""
        query = _where(queue, group, partition, error) | {
            "limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        }
        return decode(await self._transport.ask("GET", _DLQ, query=query), _Listed).messages

    async def replay(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        error: str | None = None,
        ids: Sequence[str] | None = None,
    ) -> list[tuple[str, str]]:
        """Push dead letters again, all or those chosen; (dead letter, new message) ids. Each is replayed once."""
        body: dict[str, object] = dict(_where(queue, group, partition, error))
        if ids is not None:
            body["ids"] = _checked(ids)
        answer = await self._transport.ask("POST", path_of("dlq", "replay"), body=encode(body))
        return [(pair.id, pair.message_id) for pair in decode(answer, _Replayed).replayed]

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
        query = _where(queue, group, partition, error)
        if ids is not None:
            query["ids"] = ",".join(_checked(ids))
        return decode(await self._transport.ask("DELETE", _DLQ, query=query), _Purged).purged


def _where(queue: str, group: str | None, partition: str | None, error: str | None) -> dict[str, str | int]:
    where: dict[str, str | int] = {"queue": check_name("queue", queue)}
    if group is not None:
        where["consumerGroup"] = check_name("group", group)
    if partition is not None:
        where["partition"] = check_name("partition", partition)
    if error is not None:
        where["error"] = check_name("error", error, chars_max=ERROR_CHARS_MAX)
    return where


def _checked(ids: Sequence[str]) -> list[str]:
    """Naming none is a mistake: to mean all, name no ids at all."""
    if isinstance(ids, str) or not ids:
        raise InvalidRequest("ids are a list of dead letter ids with at least one in it")
    return [check_name("id", id) for id in ids]
