"""Ack and pop in one request, or in two with a broker of an earlier release."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from fairlane.client.acks import Acks, call_of, outcomes_of
from fairlane.client.errors import error_from_problem
from fairlane.client.pops import Pops, affinity, decoded_batch, query_of, where
from fairlane.client.resource import decode
from fairlane.client.transport import Transport, path_of
from fairlane.errors import FairlaneError, NotFound
from fairlane.model.batch import AckedAndPopped, Batch
from fairlane.model.decoding import decoder_of
from fairlane.model.lease import PopRequest
from fairlane.model.outcome import AckItem
from fairlane.runtime.clock import wall_clock
from fairlane.wire.ack import AckBatch
from fairlane.wire.base import encode
from fairlane.wire.pop import AckAndPopAnswer

_UNKNOWN_SECONDS = 60.0
"""Time for which a broker without `ack_and_pop` gets two requests instead."""


class AckAndPops:
    def __init__(self, transport: Transport, acks: Acks, pops: Pops) -> None:
        self._transport = transport
        self._acks = acks
        self._pops = pops
        self._unknown_until = 0.0

    async def send(self, items: Sequence[AckItem], asked: PopRequest, type: Any) -> AckedAndPopped:
        if items and monotonic() >= self._unknown_until:
            try:
                return await self._in_one(items, asked, type)
            except NotFound as error:
                if error.code != "no_such_route":
                    raise
                self._unknown_until = monotonic() + _UNKNOWN_SECONDS
        outcomes = await self._acks.send((asked.queue, asked.group), items)
        try:
            return AckedAndPopped(outcomes, await self._pops.pop(asked, type))
        except FairlaneError as error:
            return AckedAndPopped(outcomes, Batch(""), error)

    async def _in_one(self, items: Sequence[AckItem], asked: PopRequest, type: Any) -> AckedAndPopped:
        spans = self._transport.spans
        if spans is None:
            return await self._exchange(items, asked, type)
        since = wall_clock()
        with spans.acks_with_pop(asked.queue, asked.group, len(items)):
            answer = await self._exchange(items, asked, type)
        if answer.batch:
            spans.record_pop(answer.batch, asked.queue, asked.group, since=since)
        return answer

    async def _exchange(self, items: Sequence[AckItem], asked: PopRequest, type: Any) -> AckedAndPopped:
        call, key = call_of(items), affinity(asked.queue, asked.group)
        path, wait = path_of("ack-and-pop", *where(asked)), asked.wait_seconds
        sent = encode(AckBatch(call.acks))
        body = await self._transport.request("POST", path, key=key, query=query_of(asked), body=sent, wait=wait)
        answer = decode(body, AckAndPopAnswer)
        outcomes = outcomes_of(call, iter(answer.acknowledgments))
        error = None if answer.problem is None else error_from_problem(answer.problem)
        return AckedAndPopped(outcomes, decoded_batch(answer, decoder_of(type)), error)
