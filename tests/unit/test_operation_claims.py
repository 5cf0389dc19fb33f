"""Claims of operations: how much a broker takes at once, and for how long it keeps what it could not apply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fairlane.broker.admission import Limit
from fairlane.broker.broker import Broker
from fairlane.broker.deferral import drain
from fairlane.errors import LaneLocked, StoreUnavailable
from fairlane.model.operation import TIMEOUT_SECONDS
from fairlane.runtime import batch_size
from fairlane.store.contract.operations import Application, ApplyResult
from tests.until import until

LANES = 60
STATEMENT_SECONDS = 30.0


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr(batch_size, "FIRST_SHARE", 8)  # so that the first claim takes several lanes
    async with Broker.open(str(tmp_path / "queue.db")) as broker:
        await broker._engine.operation_drain.stop()
        broker._engine.admission.limits = {"push": Limit(-1.0, 10_000)}
        yield broker


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


async def test_operations_that_cannot_be_applied_together_are_left_to_others_before_their_claim_ends(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of many lanes that ends by its statement's timeout has used up the claims of all of them."""
    clock = Clock()
    monkeypatch.setattr(drain, "monotonic", clock)
    operations = broker._engine.store.operations
    apply, claim = operations.apply, operations.claim
    claimed_at = 0.0
    together: list[int] = []
    ages: list[float] = []

    async def watched_claim(*arguments: object, **options: object) -> object:
        nonlocal claimed_at
        claimed_at = clock.at
        return await claim(*arguments, **options)  # type: ignore[arg-type]

    async def slow_apply(work: Sequence[Application]) -> list[ApplyResult]:
        ages.append(clock.at - claimed_at)
        together.append(len(work))
        if len(work) > 3:
            clock.at += STATEMENT_SECONDS
            raise StoreUnavailable("canceling statement due to statement timeout")
        return await apply(work)

    monkeypatch.setattr(operations, "claim", watched_claim)
    monkeypatch.setattr(operations, "apply", slow_apply)
    for number in range(LANES):
        assert (await broker.push("orders", number, partition=str(number))).status == "buffered"
    broker._engine.operation_drain.start()

    async def applied() -> bool:
        return not await operations.depth()

    await until(applied)
    assert max(ages) < TIMEOUT_SECONDS / 2, "nothing is tried under a claim that has ended"
    assert together[1] < together[0] / 2, "after a failure less is claimed"


async def test_a_claim_that_takes_long_to_apply_makes_the_next_smaller(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(drain, "monotonic", clock)
    operations = broker._engine.store.operations
    apply = operations.apply
    together: list[int] = []

    async def slow_apply(work: Sequence[Application]) -> list[ApplyResult]:
        together.append(len(work))
        clock.at += 0.5 * len(work)
        return await apply(work)

    monkeypatch.setattr(operations, "apply", slow_apply)
    for number in range(LANES):
        await broker.push("orders", number, partition=str(number))
    broker._engine.operation_drain.start()

    async def applied() -> bool:
        return not await operations.depth()

    await until(applied)
    assert together[0] == 8
    assert max(together[1:]) <= 4, "two seconds of work at most"


async def test_operations_of_locked_partitions_that_are_refused_at_once_make_the_next_claim_no_larger(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How fast a refusal comes says nothing of how many operations the store can apply."""
    operations = broker._engine.store.operations
    apply, claim = operations.apply, operations.claim
    allowed: list[int] = []

    async def watched_claim(*arguments: object, **options: int) -> object:
        claimed = await claim(*arguments, **options)  # type: ignore[arg-type]
        if claimed:
            allowed.append(options["backlogs"])
        return claimed

    async def locked(work: Sequence[Application]) -> list[ApplyResult]:
        if len(allowed) < 4:
            raise LaneLocked("somebody else holds the partition")
        return await apply(work)

    monkeypatch.setattr(operations, "claim", watched_claim)
    monkeypatch.setattr(operations, "apply", locked)
    for number in range(LANES):
        assert (await broker.push("orders", number, partition=str(number))).status == "buffered"
    broker._engine.operation_drain.start()

    async def applied() -> bool:
        return not await operations.depth()

    await until(applied)
    assert allowed[:4] == allowed[:1] * 4
    assert allowed[4] > allowed[0], "what is applied fast does"


async def test_acks_are_applied_before_the_pushes_of_the_same_claim(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker._engine.admission.limits = {}
    await broker.push("orders", "first")
    batch = await broker.pop("orders")
    broker._engine.admission.limits = {"push": Limit(-1.0, 10_000), "ack": Limit(-1.0, 10_000)}
    await broker.push("orders", "second")
    await broker.ack(batch)
    operations = broker._engine.store.operations
    apply = operations.apply
    calls: list[list[str]] = []

    async def watched(work: Sequence[Application]) -> list[ApplyResult]:
        calls.append(["ack" if one.ack is not None else "push" for one in work])
        return await apply(work)

    monkeypatch.setattr(operations, "apply", watched)
    broker._engine.operation_drain.start()

    async def applied() -> bool:
        return not await operations.depth()

    await until(applied)
    assert calls == [["ack"], ["push"]]
