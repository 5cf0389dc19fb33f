"""The carrier of commands that are calls: one after another in a lane, lanes beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import msgspec

from fairlane.broker.delivery import Batch, Delivery
from fairlane.commands.claim import Claim
from fairlane.commands.verdicts import comes_again, done, failed, key_of
from fairlane.model.outcome import AckItem
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.telemetry import CommandCounts

LANE_MESSAGES = 8
"""Taken of a lane at once: while they wait here no other broker can have them."""


class Executor(Protocol):
    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """Carry out a command; what it came to, as JSON. CommandFailed if it came to nothing."""
        ...


class Calls:
    """The carrier of commands that somebody else carries out."""

    def __init__(self, compiled: CompiledQueue, executor: Executor, counts: CommandCounts) -> None:
        self._compiled = compiled
        self._executor = executor
        self._counts = counts

    def asks(self, free: int, *, unordered: bool) -> tuple[int, int]:
        return (free, free) if unordered else (LANE_MESSAGES, 1)

    def parts(self, batch: Batch, *, unordered: bool) -> list[Sequence[Delivery]]:
        return [[message] for message in batch] if unordered else [batch]

    async def carry(self, claim: Claim, messages: Sequence[Delivery]) -> None:
        for index, message in enumerate(messages):
            if not claim.goes_on:
                claim.left += len(messages) - index
                return
            item = await self._carried(message)
            # Those behind one that comes again do so by themselves.
            if not await claim.settle([item]) or comes_again(item):
                return

    async def _carried(self, message: Delivery) -> AckItem:
        began = perf_counter()
        try:
            command = self._compiled.command(decoded(bytes(message.data)))
            assert command is not None  # only queues with a mapping are carried
            result = await self._executor.run(
                command.name, msgspec.json.encode(command.input), idempotency_key=key_of(message)
            )
        except Exception as error:  # the command's boundary: its failure is a verdict
            item = failed(message, error)
        else:
            item = done(message, result)
        self._counts.record(item.status, perf_counter() - began)
        return item
