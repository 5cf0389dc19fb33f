"""Results: what became of a message, and what its handler returned; waited for if asked to."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import msgspec

from fairlane.client.family import Family, decode
from fairlane.client.pops import affinity
from fairlane.client.transport import path_of
from fairlane.errors import CommandFailed, FairlaneError, Unavailable
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE, check_name, name_or_none
from fairlane.wire.browse import MessageResult

RESULT_SECONDS = 30.0
_POLL_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


class Results(Family):
    async def message_result(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str = DEFAULT_PARTITION,
        group: str | None = None,
        wait: float = 0.0,
    ) -> MessageResult:
        """What became of a message for a group, and the result that its ack carried: as things are, or when the group
        is done with it, after `wait` seconds at the latest. Without a `group`: the one that carries out commands, the
        queue's own, or the only one there is. Raises NotFound."""
        query: dict[str, str | int] = {"partition": check_name("partition", partition)}
        if name_or_none("group", group) is not None:
            query["consumerGroup"] = group or ""
        if wait:
            query |= {"wait": "true", "timeout": round(wait * 1000)}
        path = path_of("queues", check_name("queue", queue), "results", check_name("transaction_id", transaction_id))
        key = affinity(queue, group or QUEUE_MODE)  # where its acks come in, which wake who waits
        return decode(await self._transport.ask("GET", path, key=key, query=query, wait=wait), MessageResult)

    async def result(
        self,
        queue: str,
        transaction_id: str,
        *,
        type: Any = Any,
        partition: str = DEFAULT_PARTITION,
        group: str | None = None,
        timeout: float = RESULT_SECONDS,  # noqa: ASYNC109  # of the broker, over several requests
    ) -> Any:
        """The result of a message, when its handler or command is done with it: what that returned, decoded as `type`,
        or None if it returned nothing. Raises CommandFailed if the message was given up, Unavailable if it is not done
        after `timeout` seconds, and NotFound if no such message came."""
        give_up_at = monotonic() + timeout
        while True:
            wait = min(_POLL_SECONDS, max(0.0, give_up_at - monotonic()))
            found = await self.message_result(queue, transaction_id, partition=partition, group=group, wait=wait)
            if found.over or monotonic() >= give_up_at:
                break
            await asyncio.sleep(_PAUSE_SECONDS)  # a broker that stops answers early
        if found.status == "dead_letter":
            raise CommandFailed(f"message {transaction_id!r:.80} was given up: {found.error}")
        if not found.over:
            raise Unavailable(f"message {transaction_id!r:.80} is {found.status} still, after {timeout:g} s")
        try:
            return msgspec.json.decode(found.raw, type=type)
        except msgspec.DecodeError as error:
            raise FairlaneError(f"the result of message {transaction_id!r:.80} is another: {error}") from None
