"""Messages of other programs' transactions: moved on PostgreSQL, in any schema and cell, and refused on SQLite."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidRequest
from tests.conformance.harness import Harness

HERE = "only on PostgreSQL"


async def test_staged_messages_are_moved_where_other_programs_can_write(harness: Harness) -> None:
    await harness.reopen(own_clock=True)  # the functions of other programs have only the clock of the database
    broker, queue = harness.broker, harness.name("orders")
    if not harness.store.staged.supported:
        with pytest.raises(InvalidRequest, match=HERE):
            await broker.staged.grant("app", queue)
        assert await broker.staged.queues() == []
        return
    for n in range(3):
        await harness.backend.sql("SELECT fairlane.enqueue($1, to_json($2::int), partition => 'p')", queue, n)
    for n in range(3):
        [message] = await broker.pop(queue, partition="p", wait=60)
        assert message.data == n
        place = str(message.partition_id), message.position
        await harness.backend.sql("SELECT fairlane.complete($1, $2, $3)", message.lease, *place)
    assert not await broker.pop(queue)


async def test_only_postgresql_has_roles_that_may_enqueue(harness: Harness) -> None:
    broker = harness.broker
    assert await broker.staged.grants() == []
    if harness.store.staged.supported:
        assert not await broker.staged.revoke("nobody")
    else:
        with pytest.raises(InvalidRequest, match=HERE):
            await broker.staged.revoke("nobody")
