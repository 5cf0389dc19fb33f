"""Transactions: acks and pushes over any queues, all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, cast

import msgspec

from fairlane.client.errors import error_from_problem
from fairlane.client.pushes import item_of
from fairlane.errors import TransactionRefused
from fairlane.model.fan_in import FanInMessage, FanInOptions, items_of, named
from fairlane.model.ids import PartitionId
from fairlane.model.message import Message, PushOptions
from fairlane.model.outcome import AckItem, AckOutcome, AckStatus, PushOutcome, PushStatus
from fairlane.model.verdict import ack_item
from fairlane.wire.transactions import TransactionAnswer, TransactionResult, TransactionStep


class Transaction:
    """The steps of a transaction. `outcomes` has one outcome per step after the commit."""

    def __init__(self) -> None:
        self.steps: list[TransactionStep] = []
        self.outcomes: list[PushOutcome | AckOutcome] = []

    def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> None:
        item = item_of(queue, data, options)
        self.steps.append(TransactionStep(type="push", items=[item]))

    def fan_in(self, parts: Sequence[FanInMessage], then: FanInMessage, **options: Unpack[FanInOptions]) -> str:
        """Push messages, and push `then` once after the group has finished or given up all of them.

        Returns the id of the fan-in.
        """
        step = fan_in_step(parts, then, options)
        self.steps.append(step)
        return str(step.id)

    def ack(
        self,
        messages: Message[Any] | Sequence[Message[Any]],
        status: AckStatus = "completed",
        *,
        error: str | None = None,
    ) -> None:
        for message in [messages] if isinstance(messages, Message) else messages:
            item = ack_item(message, status, error)
            item.check()
            self.settle(message, item)

    def settle(self, message: Message[Any], item: AckItem) -> None:
        """Add an ack step for a message, with any status that an ack can have."""
        self.steps.append(
            TransactionStep(
                type="ack",
                transaction_id=item.transaction_id,
                partition_id=str(item.partition),
                consumer_group=message.group,
                status=item.status,
                lease_id=item.lease,
                error=item.error,
                traceback=item.traceback,
                delay_ms=item.delay_ms,
                result=msgspec.UNSET if item.result is None else msgspec.Raw(item.result),
                position=item.position,
            )
        )


def fan_in_step(parts: Sequence[FanInMessage], then: FanInMessage, options: FanInOptions) -> TransactionStep:
    """Return a fan-in as a step. Raises InvalidRequest if a part or the callback is invalid."""
    items, callback = items_of(parts, then, item_of)
    if len(then) == 2 or then[2].get("transaction_id") is None:
        callback.transaction_id = None  # so that it gets the id of the fan-in
    id, group = named(options)
    return TransactionStep(type="fan_in", id=id, items=items, then=callback, consumer_group=group)


def outcomes_of(answer: TransactionAnswer) -> list[PushOutcome | AckOutcome]:
    """Return one outcome per step.

    Raises TransactionRefused, with the `index` of the step, if a step was refused.
    """
    if not answer.success:
        raise error_from_problem(answer, TransactionRefused)
    return [_outcome(result) for result in answer.results]


def _outcome(result: TransactionResult) -> PushOutcome | AckOutcome:
    if result.type == "ack":
        return AckOutcome(
            result.success, result.transaction_id, dead_lettered=result.dlq is True, error=result.error or None
        )
    return PushOutcome(
        cast(PushStatus, result.status),
        result.transaction_id,
        result.message_id or None,
        None if not result.partition_id else PartitionId.parse(result.partition_id),
        deliver_at=result.deliver_at or None,
    )
