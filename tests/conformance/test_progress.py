"""MessageProgress of messages: shown while the lease that reported it holds the message, and never after."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.model.ids import uuid7
from fairlane.model.message import Message
from fairlane.model.tenant import Quotas
from fairlane.wire.browse import MessageProgress, ProgressItem
from tests.conformance.harness import Harness
from tests.conformance.test_encryption import CANARY, OLD, opened

ORDERINGS = ("per_key", "unordered")


def item(message: Message[Any], fraction: float, text: str = "", **changes: Any) -> ProgressItem:
    fields: dict[str, Any] = {
        "lease_id": message.lease,
        "partition_id": str(message.partition_id),
        "position": message.position,
    }
    return ProgressItem(**fields | changes, fraction=fraction, text=text)


async def shown(broker: Broker, message: Message[Any]) -> MessageProgress | None:
    """Return the progress of a message, after a check that both ways to read it agree."""
    found = await broker.messages.get(str(message.partition_id), message.transaction_id)
    [group] = found.consumer_groups
    result = await broker.results.get(message.queue, message.transaction_id, partition=message.partition)
    assert result.progress == group.progress
    return group.progress


async def filled(harness: Harness, count: int, ordering: str = "per_key", **options: Any) -> tuple[Broker, str]:
    broker, queue = harness.broker, harness.name("jobs")
    await broker.queues.configure(queue, ordering=ordering, lease_seconds=30, **options)
    for n in range(count):
        await broker.push(queue, n)
    return broker, queue


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_the_last_report_of_a_call_counts(harness: Harness, ordering: str) -> None:
    broker, queue = await filled(harness, 1, ordering)
    [message] = await broker.pop(queue)
    stale = item(message, 1, "stale", lease_id=f"{message.lease.split('.')[0]}.{harness.token()}")
    reports = [item(message, 0.25, "page 1"), item(message, 0.5, "page 2"), stale]
    assert await broker.messages.report_progress(reports) == 1
    found = await shown(broker, message)
    assert found is not None
    assert (found.fraction, found.text) == (0.5, "page 2")


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_the_latest_progress_is_shown_until_the_message_is_finished(harness: Harness, ordering: str) -> None:
    broker, queue = await filled(harness, 2, ordering)
    first, second = await broker.pop(queue, batch=2)
    assert await shown(broker, first) is None
    assert await broker.messages.report_progress([item(first, 0.25, "page 1"), item(second, 0)]) == 2
    assert await broker.messages.report_progress([item(first, 0.5, "page 2")]) == 1
    found = await shown(broker, first)
    assert found is not None
    assert (found.fraction, found.text, found.at) == (0.5, "page 2", harness.clock())
    await broker.ack(first)
    assert await shown(broker, first) is None
    found = await shown(broker, second)
    assert found is not None
    assert (found.fraction, found.text) == (0, "")


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_progress_of_an_earlier_attempt_is_not_shown(harness: Harness, ordering: str) -> None:
    broker, queue = await filled(harness, 1, ordering)
    [message] = await broker.pop(queue)
    await broker.messages.report_progress([item(message, 0.5)])
    await broker.nack(message)
    assert await shown(broker, message) is None
    [again] = await broker.pop(queue)
    assert await shown(broker, again) is None
    assert await broker.messages.report_progress([item(message, 0.9)]) == 0
    await broker.messages.report_progress([item(again, 0.1)])
    harness.clock.advance(31)
    assert await shown(broker, again) is None
    assert await broker.messages.report_progress([item(again, 0.2)]) == 0


async def test_only_the_holder_of_a_message_reports_its_progress(harness: Harness) -> None:
    broker, queue = await filled(harness, 2)
    [message] = await broker.pop(queue)
    wrong: list[dict[str, Any]] = [
        {"position": message.position + 1},
        {"partition_id": "0-987654321"},
        {"lease_id": "nothing"},
        {"lease_id": f"{message.lease.split('.')[0]}.{uuid7()}"},
    ]
    assert await broker.messages.report_progress([item(message, 0.5, **changes) for changes in wrong]) == 0
    other = broker.of(harness.name("tenant"))
    assert await harness.store.tenants.make(other.tenant, Quotas())
    assert await other.messages.report_progress([item(message, 0.5)]) == 0
    assert await shown(broker, message) is None


async def test_progress_of_encrypted_queues_is_sealed(harness: Harness) -> None:
    await opened(harness, OLD)
    broker, queue = await filled(harness, 1, encryption_enabled=True)
    [message] = await broker.pop(queue)
    await broker.messages.report_progress([item(message, 0.5, CANARY)])
    rows = await harness.backend.sql("SELECT x.report FROM fairlane.progress x")
    assert rows
    assert not any(CANARY.encode() in bytes(report) for (report,) in rows)
    found = await shown(broker, message)
    assert found is not None
    assert found.text == CANARY


async def test_old_progress_is_deleted(harness: Harness) -> None:
    broker, queue = await filled(harness, 1)
    [message] = await broker.pop(queue)
    await broker.messages.report_progress([item(message, 0.5)])
    harness.clock.advance(25 * 3600)
    [again] = await broker.pop(queue)
    await broker.push(queue, 1, partition="other")
    [other] = await broker.pop(queue, partition="other")
    await broker.messages.report_progress([item(other, 0.5)])
    query = "SELECT count(*) FROM fairlane.progress x WHERE x.partition_id = $1"
    assert await harness.backend.sql(query, message.partition_id.id) == [(0,)]
    assert again.position == message.position
