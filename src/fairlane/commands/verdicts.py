"""Verdicts on messages that become commands, as acks."""

from __future__ import annotations

import logging

from fairlane.broker.delivery import Delivery
from fairlane.errors import CommandFailed, ExpressionTooCostly, FairlaneError
from fairlane.model.idempotency import idempotency_key
from fairlane.model.outcome import AckItem, AckStatus

POSTPONED_MS = 1000
"""How long a message stays where it is while the queue behind it has no room."""

log = logging.getLogger(__name__)


def key_of(delivery: Delivery) -> str:
    return idempotency_key(delivery.queue, delivery.partition, delivery.transaction_id, delivery.headers)


def done(delivery: Delivery, result: bytes | None) -> AckItem:
    return _item(delivery, "completed", result=result)


def failed(delivery: Delivery, error: Exception) -> AckItem:
    """A failed attempt, which is repeated as the queue's delivery settings say; the end if trying again is no use."""
    if not isinstance(error, FairlaneError):
        log.error("unexpected error in a command of queue %r", delivery.queue, exc_info=error)
        return _item(delivery, "failed", error=f"{type(error).__name__}: {error}")
    if isinstance(error, ExpressionTooCostly):  # it would be so at every attempt, at everybody's cost
        return _item(delivery, "dlq", error=str(error))
    if not isinstance(error, CommandFailed):
        return _item(delivery, "failed", error=str(error))
    if not error.retryable:
        return _item(delivery, "dlq", error=str(error))
    delay_ms = None if error.retry_after is None else round(error.retry_after * 1000)
    return _item(delivery, "failed", error=str(error), delay_ms=delay_ms)


def postponed(delivery: Delivery, error: FairlaneError) -> AckItem:
    """Comes again soon, without a charge: it is not to blame."""
    return _item(delivery, "retry", error=str(error), delay_ms=POSTPONED_MS)


def comes_again(item: AckItem) -> bool:
    return item.status in ("failed", "retry")


def _item(
    delivery: Delivery,
    status: AckStatus,
    *,
    error: str | None = None,
    delay_ms: int | None = None,
    result: bytes | None = None,
) -> AckItem:
    return AckItem(
        transaction_id=delivery.transaction_id,
        partition=delivery.partition_id,
        lease=delivery.lease,
        position=delivery.position,
        status=status,
        error=error,
        delay_ms=delay_ms,
        result=result,
    )
