"""The carrier of commands that are pushes: messages become messages of another queue, in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from time import perf_counter

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.delivery import Batch, Delivery
from fairlane.broker.transact import AckStep, Step
from fairlane.commands.claim import Claim
from fairlane.commands.verdicts import done, failed, key_of, postponed
from fairlane.errors import FairlaneError, InvalidRequest, OutcomeUnknown
from fairlane.model.idempotency import KEY_HEADER
from fairlane.model.ids import PartitionId
from fairlane.model.limits import NAME_CHARS_MAX
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckItem
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.telemetry import CommandCounts

BATCH = 100
"""Messages of one transaction."""

Moved = list[tuple[Delivery, PushItem]]


class Chaining:
    """The carrier of commands that are pushes to `queue`. If that has a key, it names the partition; otherwise that is
    the one a message came from, so that the order of a lane is kept."""

    def __init__(self, broker: Broker, compiled: CompiledQueue, queue: str, counts: CommandCounts) -> None:
        self._broker = broker
        self._compiled = compiled
        self._queue = queue
        self._counts = counts

    def asks(self, free: int, *, unordered: bool) -> tuple[int, int]:
        return BATCH, BATCH

    def parts(self, batch: Batch, *, unordered: bool) -> list[Sequence[Delivery]]:
        return [batch]

    async def carry(self, claim: Claim, messages: Sequence[Delivery]) -> None:
        moved, refused = self._mapped(messages, unordered=claim.unordered)
        try:
            await self._commit(claim.group, moved)
        except OutcomeUnknown:
            raise  # what was committed must not be pushed again; what was not comes again
        except FairlaneError:
            refused = [*await self._one_by_one(claim, moved), *refused]
        for item in refused:
            self._counts.record(item.status, 0.0)
        if refused:
            await claim.settle(refused)

    def _mapped(self, messages: Sequence[Delivery], *, unordered: bool) -> tuple[Moved, list[AckItem]]:
        """What to push, and what to say of messages that cannot be mapped. What is behind such a one in its lane comes
        again with it."""
        moved: Moved = []
        refused: list[AckItem] = []
        ended: set[PartitionId] = set()
        for message in messages:
            if message.partition_id in ended:
                continue
            try:
                moved.append((message, self._item(message)))
            except Exception as error:  # the command's boundary: its failure is a verdict
                refused.append(failed(message, error))
                if not unordered:
                    ended.add(message.partition_id)
        return moved, refused

    def _item(self, message: Delivery) -> PushItem:
        command = self._compiled.command(decoded(bytes(message.data)))
        assert command is not None  # only queues with a mapping are carried
        payload = msgspec.json.encode(command.input)
        partition = message.partition
        target = self._broker.compiled_specs.queues.get(self._queue)
        if target is not None:
            target.check(payload)
            partition = target.partition(command.input) or partition
        return PushItem(
            queue=self._queue,
            payload=payload,
            partition=partition,
            transaction_id=_id_of(message),
            trace_id=message.trace_id,
            type=command.name,
            headers={KEY_HEADER: key_of(message)},
        )

    async def _commit(self, group: str, moved: Moved) -> None:
        steps: list[Step] = []
        for message, item in moved:
            result = msgspec.json.encode({"queue": item.queue, "partition": item.partition})
            steps += [AckStep(done(message, result), group), item]
        began = perf_counter()
        if steps:
            await self._broker.transact(steps)
        for _ in moved:
            self._counts.record("completed", perf_counter() - began)

    async def _one_by_one(self, claim: Claim, moved: Moved) -> list[AckItem]:
        """Together they were refused. What can go on does so; one that never can has failed; and from where there is no
        room all wait, for a full queue has room some day."""
        refused: list[AckItem] = []
        ended: set[PartitionId] = set()
        full: FairlaneError | None = None
        for message, item in moved:
            if message.partition_id in ended:
                continue
            try:
                if full is None:
                    await self._commit(claim.group, [(message, item)])
                    continue
            except OutcomeUnknown:
                raise
            except InvalidRequest as error:
                refused.append(failed(message, error))
            except FairlaneError as error:
                full = error
            if full is not None:
                refused.append(postponed(message, full))
            if not claim.unordered:
                ended.add(message.partition_id)
        return refused


def _id_of(message: Delivery) -> str:
    """The transactionId of what a message becomes: the same whenever it is moved, so that it is known when that is done
    again."""
    named = f"{message.queue}/{message.partition}/{message.id}"
    return named if len(named) <= NAME_CHARS_MAX else hashlib.sha256(named.encode()).hexdigest()
