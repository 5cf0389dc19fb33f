"""The broker: the verbs of the queue, in your process, on a file or a PostgreSQL URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from os import PathLike
from time import perf_counter
from typing import Any, Unpack

import msgspec

from fairlane import server_extra as _extra  # noqa: F401
from fairlane import tracing
from fairlane.broker.ack import AckRequest
from fairlane.broker.admission import PATIENT, Kind, Limit
from fairlane.broker.deferral.drain import FAILED_SECONDS
from fairlane.broker.deferral.patience import PATIENCE_SECONDS
from fairlane.broker.delivery import Popped
from fairlane.broker.parts import Parts
from fairlane.broker.push_batch import PushRequest
from fairlane.broker.transact import AckStep, Outcome, Step
from fairlane.broker.transaction import Transaction, item_of
from fairlane.config import SECRET_NAMES
from fairlane.errors import InvalidRequest
from fairlane.model.access import ANYBODY, Caller
from fairlane.model.batch import Batch, acks_of
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId, PopOptions, PopRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, POLLS_MAX, RENEW_SECONDS
from fairlane.model.message import (
    Message,
    PushItem,
    PushOptions,
    check_items,
    check_payload,
    check_payloads,
    decoder_of,
)
from fairlane.model.moment import When
from fairlane.model.names import QUEUE_MODE, check_count, check_name
from fairlane.model.outcome import (
    AckItem,
    AckOutcome,
    AckStatus,
    Alike,
    Isolation,
    PushOutcome,
    RenewOutcome,
    check_acks,
    check_isolation,
    check_leases,
)
from fairlane.model.stream import StateChange
from fairlane.outbound.addresses import Allowed
from fairlane.runtime.clock import Clock
from fairlane.store.contract.values import Renewal
from fairlane.store.opening import open_journal, open_or_wait, store_url

JOURNAL_BYTES_MAX = 1024**3


class Broker(Parts):
    """The verbs of the queue. One event loop; any number of tasks."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str | PathLike[str],
        *,
        clock: Clock | None = None,
        polls_max: int = POLLS_MAX,
        retention_interval: float = 10.0,
        failed_operations_seconds: int = FAILED_SECONDS,
        journal: str | None = None,
        journal_bytes_max: int = JOURNAL_BYTES_MAX,
        limits: Mapping[Kind, Limit] = PATIENT,
        patience_seconds: float = PATIENCE_SECONDS,
        outbound_allow: str = "",
        secret_names: str = SECRET_NAMES,
        **options: Any,
    ) -> AsyncIterator[Broker]:
        """A broker on a file like `queue.db`, `sqlite:///path`, `sqlite:///:memory:` or `postgresql://...`, on which
        up to `polls_max` pops may wait at once. Closing it answers everybody first. Every `retention_interval` seconds
        it deletes what the rules of queues cover; 0 leaves that to others. Operations that failed are kept for
        `failed_operations_seconds`, with 0 for ever.

        `journal` is a directory: pushes and acks that the store cannot take wait there as operations, and a
        broker on PostgreSQL starts without its database. A flush has `patience_seconds`, then its lanes go there;
        `limits` say when a busy one makes pushes and acks operations, or refuses them; without any it takes its time,
        for who calls it from the same process waits anyway. `outbound_allow` names hosts and networks inside that
        commands of a spec may call, `secret_names` environment variables that it may name for secrets, both separated
        by commas."""
        url = store_url(url)
        allowed = Allowed.parse(outbound_allow.split(","))
        key = options.get("encryption_key", "")
        opened = await open_journal(journal, journal_bytes_max, url, key) if journal is not None else None
        try:
            store = await open_or_wait(url, clock, options, opened)
        except BaseException:
            if opened is not None:
                await opened.close()
            raise
        if cls is Broker and tracing.spans() is not None:
            from fairlane.broker.traced import TracedBroker as cls
        broker = cls(
            store,
            polls_max=polls_max,
            journal=opened,
            limits=limits,
            patience_seconds=patience_seconds,
            allowed=allowed,
            secret_names=secret_names,
        )
        broker.operation_drain.failed_seconds = failed_operations_seconds
        broker.retention_service.start(retention_interval)
        try:
            await broker.start()
            yield broker
        finally:
            await broker.close()

    async def close(self) -> None:
        await self.stop()
        await self.store.close()
        if self.journal is not None:
            await self.journal.close()

    async def push(
        self,
        queue: str,
        data: Any,
        *,
        deliver_at: When | None = None,
        delay_ms: timedelta | int | None = None,
        priority: int | None = None,
        **options: Unpack[PushOptions],
    ) -> PushOutcome:
        """Store one message and return when it is durable. Raises QueueFull; a known transactionId is a `duplicate`.
        With a time to come, or a delay, it is `scheduled`: kept aside until then. `priority` is 0 to 9."""
        item = item_of(queue, data, **options)
        item.deliver_at, item.delay_ms, item.priority = deliver_at, delay_ms, priority
        special = check_items([item])
        [outcome] = await self.intake.push(PushRequest(self.tenant, [item], special))
        if outcome.error is not None:
            raise outcome.error
        return outcome

    async def push_many(self, items: Sequence[PushItem]) -> list[PushOutcome]:
        """Store many; one outcome per item. The items of one partition are stored together or refused together."""
        special = check_items(items)
        check_payloads(items)
        return await self.intake.push(PushRequest(self.tenant, items, special))

    async def pop(self, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]) -> Batch[Any]:
        """Lease up to `batch` messages from up to `partitions` lanes, waiting up to `wait` seconds for the first. The
        payloads are decoded as `type`, anything msgspec can decode."""
        popped = await self.pop_request(PopRequest.of(queue, options, self.tenant))
        return popped.batch(decoder_of(type))

    async def ack(
        self,
        messages: Message[Any] | Sequence[Message[Any]],
        status: AckStatus = "completed",
        *,
        error: str | None = None,
        delay_ms: timedelta | int | None = None,
        result: Any = msgspec.UNSET,
        check: bool = True,
    ) -> Sequence[AckOutcome]:
        """Say the same of some messages of one group; one outcome each. Raises LeaseLost if the lease of some had
        ended, while the others are done all the same; with `check=False` that is an outcome."""
        _, group, items = acks_of(messages, status, error, delay_ms, result)
        outcomes = await self.ack_request(AckRequest(self.tenant, group or QUEUE_MODE, items))
        return check_leases(outcomes) if check else outcomes

    async def ack_many(
        self, items: Sequence[AckItem], *, group: str = QUEUE_MODE, queue: str = ""
    ) -> Sequence[AckOutcome]:
        """Say different things of messages; one outcome each. A client sends them where the pops of `queue` went."""
        check_name("group", group)
        check_acks(items)
        return await self.ack_request(AckRequest(self.tenant, group, items))

    async def nack(
        self,
        messages: Message[Any] | Sequence[Message[Any]],
        *,
        error: str | None = None,
        delay_ms: timedelta | int | None = None,
        check: bool = True,
    ) -> Sequence[AckOutcome]:
        return await self.ack(messages, "failed", error=error, delay_ms=delay_ms, check=check)

    async def renew(self, lease: str | Batch[Any], seconds: int | None = None) -> RenewOutcome:
        """Keep a lease for `seconds` from now, or longer if it had more left; of a batch for as long as its pop was
        given it, and otherwise for a minute, unless they are given."""
        if seconds is None:
            seconds = lease.lease_seconds if isinstance(lease, Batch) else RENEW_SECONDS
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        self.admission.check_running()
        parsed = LeaseId.parse(_lease(lease))
        if parsed is None or await self.catalogue.queue_of(self.tenant, parsed.group_id) is None:
            return RenewOutcome(0, None)
        renewal = self.admission.renewals.submit(Renewal(parsed, seconds))
        return await self.telemetry.measured(self.telemetry.renew_lease, 1, renewal)

    async def leased(self, lease: str) -> list[PartitionId]:
        """The partitions that a lease is of, none if it ended."""
        parsed = LeaseId.parse(lease)
        return [] if parsed is None else [one.partition for one in await self.store.messages.leased(parsed)]

    async def release(self, lease: str | Batch[Any], *, partition: PartitionId | None = None) -> int:
        """Give a lease back without charge; how many lanes."""
        self.admission.check_running()
        parsed = LeaseId.parse(_lease(lease))
        queue_id = None if parsed is None else await self.catalogue.queue_of(self.tenant, parsed.group_id)
        if parsed is None or queue_id is None:
            return 0
        released = await self.store.messages.release(parsed, partition=partition)
        self.waiters.wake_group(parsed.group_id, released)
        self.store.hint(queue_id)
        return released

    @asynccontextmanager
    async def transaction(self, *, isolation: Isolation = "serializable") -> AsyncIterator[Transaction]:
        """Collect acks and pushes, and commit them all, or none, at the end of the block.

        `isolation` is the weakest level that will do; every transaction is serializable.
        """
        check_isolation(isolation)
        transaction = Transaction()
        yield transaction
        if transaction.steps:
            transaction.outcomes = await self.transact(transaction.steps)

    async def transact(self, steps: Sequence[Step]) -> list[Outcome]:
        if not isinstance(steps, Sequence):
            raise InvalidRequest("a transaction takes a list of pushes and acks")
        check_items([step for step in steps if isinstance(step, PushItem)])
        for step in steps:
            if isinstance(step, PushItem):
                check_payload(step.payload)
            elif isinstance(step, AckStep):
                check_name("group", step.group)
                check_acks([step.item])
            else:
                raise InvalidRequest(f"a transaction takes pushes and acks, not {type(step).__name__}")
        return await self.transact_checked(steps)

    async def transact_checked(
        self, steps: Sequence[Step], change: StateChange | None = None, *, release: bool = False
    ) -> list[Outcome]:
        """A transaction of steps that were checked; one with a `change` changes the state of a stream as well."""
        self.admission.check_running()
        if change is not None:
            await self.streams.check(change)
        await self.room.check()
        await self.intake.know_specs()
        steps = self.compiled_specs.admit_steps(steps)
        steps = await self.priorities.apply(self.tenant, steps, away=not self.route.watch.up)
        self.route.check(self.tenant, steps)
        commit = None if change is None else partial(self.store.streams.cycle, change)
        transaction = self.transactor.transact(self.tenant, steps, commit=commit, release=release)
        size = len(steps) + (len(change.ops) if change else 0)
        outcomes = await self.telemetry.measured(self.telemetry.transaction, size, transaction)
        self.announcer.flushed()
        return outcomes

    async def pop_request(self, request: PopRequest) -> Popped:
        admission = self.admission
        if admission.stopped:
            admission.check_running()
        if admission.acks.waiting or "pop" not in admission.calm or not admission.watch.up:
            admission.defers("pop")
        else:
            admission.decisions["pop"]["execute"] += 1
        popping = self._popper.pop(request)
        if (most := self.room.quotas.polls) is not None and request.wait_seconds:
            return await self.room.wait(popping, most)
        return await popping

    async def ack_request(self, request: AckRequest) -> Sequence[AckOutcome]:
        items, began = request.items, perf_counter()
        count = items.size if type(items) is Alike else len(items)
        if not count:
            return []
        admission = self.admission
        if admission.stopped:
            admission.check_running()
        batcher = admission.acks
        if batcher.waiting or "ack" not in admission.calm or not admission.watch.up:
            batcher = admission.ack_operations if admission.defers("ack") else batcher
        else:
            admission.decisions["ack"]["execute"] += 1
        try:
            outcomes = await batcher.put(request, count)
        except Exception:  # whatever it is, it is counted and goes on to the caller
            self.telemetry.ack.errors += 1
            raise
        self.telemetry.done(self.telemetry.ack, began, count)
        return outcomes

    def give_back(self, lease: LeaseId) -> None:
        """Release a lease whose holder went away before it knew of it. Returns at once."""
        self._popper.chores.give_back(lease)

    async def pop_any(
        self, request: PopRequest, *, namespace: str | None, task: str | None, caller: Caller = ANYBODY
    ) -> Popped:
        """Pop from whichever queue with these labels has something, of those that the caller may pop from."""
        self.admission.check_running()
        self.admission.defers("pop")
        return await self._wide_popper.pop(request, namespace, task, caller)


def _lease(lease: str | Batch[Any]) -> str:
    return lease.lease if isinstance(lease, Batch) else lease
