"""Fairlane as a library: a broker in your process, on a file or a PostgreSQL URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from fairlane.delivery import Batch, Delivery, batch_of, completed
from fairlane.engine.ack import AckRequest
from fairlane.engine.admission import LIMITS, Kind, Limit
from fairlane.engine.catalogue_watch import CATALOGUE
from fairlane.engine.draft import PushRequest
from fairlane.engine.engine import Engine
from fairlane.engine.halts import Place
from fairlane.engine.patience import PATIENCE_SECONDS
from fairlane.engine.pop import PopRequest
from fairlane.engine.transact import AckStep, Outcome, Step
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.explanation import Explanation
from fairlane.model.group import Group, LaneState, Seek, Subscription
from fairlane.model.limits import COUNT_MAX, LEASE_SECONDS_MAX, POLLS_MAX
from fairlane.model.message import PushItem, check_items, check_payload, check_payloads
from fairlane.model.names import DEFAULT_PARTITION, DEFAULT_TENANT, QUEUE_MODE, check_count, check_name
from fairlane.model.outcome import AckItem, AckOutcome, AckStatus, DeadLetter, PushOutcome, RenewOutcome, check_acks
from fairlane.model.queue import Queue, queue_options
from fairlane.opening import open_journal, open_or_wait
from fairlane.runtime.clock import Clock
from fairlane.store.base import Store
from fairlane.store.journal import Journal
from fairlane.store.values import DeadFilter, Waiting
from fairlane.transaction import Transaction, ack_item, item_of

JOURNAL_BYTES_MAX = 1024**3
_ALL = Subscription()
_ANY = DeadFilter()


class Broker:
    """The verbs of the queue. One event loop; any number of tasks."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = DEFAULT_TENANT,
        polls_max: int = POLLS_MAX,
        journal: Journal | None = None,
        limits: Mapping[Kind, Limit] = LIMITS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """With a `journal`, await `engine.start()` before the first call."""
        self.store = store
        self.journal = journal
        self.engine = Engine(
            store,
            polls_max=polls_max,
            journal=journal,
            tenant=tenant,
            limits=limits,
            patience_seconds=patience_seconds,
        )
        self.tenant = tenant

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        polls_max: int = POLLS_MAX,
        retention_interval: float = 10.0,
        journal: str | None = None,
        journal_bytes_max: int = JOURNAL_BYTES_MAX,
        limits: Mapping[Kind, Limit] = LIMITS,
        patience_seconds: float = PATIENCE_SECONDS,
        **options: Any,
    ) -> AsyncIterator[Broker]:
        """A broker on `sqlite:///path`, `sqlite:///:memory:` or `postgresql://...`, on which up to `polls_max` pops
        may wait at once. Closing it answers everybody first. Every `retention_interval` seconds it deletes what the
        rules of queues cover; 0 leaves that to others.

        `journal` is a directory: pushes and acks that the store cannot take are kept there and applied later, and a
        broker on PostgreSQL starts without its database. A store that takes longer than `patience_seconds` is away;
        `limits` say when a busy one lets pushes and acks wait, or refuses them."""
        kept = await open_journal(journal, journal_bytes_max) if journal is not None else None
        try:
            store = await open_or_wait(url, clock, options, late=kept is not None)
        except BaseException:
            if kept is not None:
                await kept.close()
            raise
        broker = cls(store, polls_max=polls_max, journal=kept, limits=limits, patience_seconds=patience_seconds)
        broker.engine.retention.start(retention_interval)
        try:
            await broker.engine.start()
            yield broker
        finally:
            await broker.close()

    async def close(self) -> None:
        await self.engine.stop()
        await self.store.close()
        if self.journal is not None:
            await self.journal.close()

    async def push(
        self,
        queue: str,
        data: Any,
        *,
        partition: str = DEFAULT_PARTITION,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        type: str | None = None,
        headers: dict[str, str] | None = None,
        deliver_at: int | None = None,
        delay_ms: int | None = None,
    ) -> PushOutcome:
        """Store one message and return when it is durable. Raises QueueFull; a known transactionId is a `duplicate`.
        With a time to come, or a delay, it is `scheduled`: kept aside until then."""
        item = item_of(queue, data, partition, transaction_id, trace_id, type, headers)
        item.deliver_at, item.delay_ms = deliver_at, delay_ms
        timed = check_items([item])
        [outcome] = await self.engine.push(PushRequest(self.tenant, [item], timed))
        if outcome.error is not None:
            raise outcome.error
        return outcome

    async def push_many(self, items: Sequence[PushItem]) -> list[PushOutcome]:
        """Store many; one outcome per item. The items of one partition are stored together or refused together."""
        timed = check_items(items)
        check_payloads(items)
        return await self.engine.push(PushRequest(self.tenant, items, timed))

    async def scheduled(self, queue: str, *, limit: int = 100) -> list[Waiting]:
        """Messages that wait for their time, next due first."""
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self.engine.schedules.list(self.tenant, queue, limit=limit)

    async def cancel(self, queue: str, transaction_id: str, *, partition: str = DEFAULT_PARTITION) -> bool:
        """Forget a scheduled message; False if it does not wait (any more)."""
        return await self.engine.schedules.cancel(self.tenant, queue, partition, transaction_id)

    async def reschedule(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str = DEFAULT_PARTITION,
        deliver_at: int | None = None,
        delay_ms: int | None = None,
    ) -> int | None:
        """Let a scheduled message be due at another time; that time, None if it does not wait (any more)."""
        when = PushItem(queue=queue, payload=b"", deliver_at=deliver_at, delay_ms=delay_ms)
        return await self.engine.schedules.reschedule(self.tenant, queue, partition, transaction_id, when)

    async def pop(
        self,
        queue: str,
        *,
        group: str = QUEUE_MODE,
        batch: int = 1,
        partitions: int = 1,
        partition: str | None = None,
        wait: float = 0.0,
        auto_ack: bool = False,
        lease_seconds: int | None = None,
        subscription: Subscription = _ALL,
    ) -> Batch:
        """Lease up to `batch` messages from up to `partitions` lanes, waiting up to `wait` seconds for the first."""
        request = PopRequest(
            tenant=self.tenant,
            queue=queue,
            group=group,
            batch=batch,
            partitions=partitions,
            partition=partition,
            auto_ack=auto_ack,
            lease_seconds=lease_seconds,
            wait_seconds=wait,
            subscription=subscription,
        )
        return batch_of(await self.engine.pop(request.check()))

    async def ack(
        self,
        deliveries: Delivery | Sequence[Delivery],
        status: AckStatus = "completed",
        *,
        error: str | None = None,
        delay_ms: int | None = None,
        result: Any = msgspec.UNSET,
    ) -> list[AckOutcome]:
        """Say the same of some messages of one group; one outcome each."""
        some = _deliveries(deliveries)
        groups = {lane.group for lane, _ in some.lanes} if isinstance(some, Batch) else {one.lane.group for one in some}
        if len(groups) > 1:
            raise InvalidRequest("one ack is about messages of one group")
        items: Sequence[AckItem]
        if status == "completed" and result is msgspec.UNSET and error is None and delay_ms is None:
            items = completed(some)
        else:
            items = [ack_item(delivery, status, error, delay_ms, result) for delivery in some]
            check_acks(items)
        return await self.engine.ack(AckRequest(self.tenant, groups.pop() if groups else QUEUE_MODE, items))

    async def ack_many(self, items: Sequence[AckItem], *, group: str = QUEUE_MODE) -> list[AckOutcome]:
        """Say different things of messages; one outcome each."""
        check_name("group", group)
        check_acks(items)
        return await self.engine.ack(AckRequest(self.tenant, group, items))

    async def nack(
        self, deliveries: Delivery | Sequence[Delivery], *, error: str | None = None, delay_ms: int | None = None
    ) -> list[AckOutcome]:
        return await self.ack(deliveries, "failed", error=error, delay_ms=delay_ms)

    async def renew(self, lease: str | Batch, seconds: int = 60) -> RenewOutcome:
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        return await self.engine.renew(_lease(lease), seconds=seconds)

    async def release(self, lease: str | Batch) -> int:
        return await self.engine.release(_lease(lease))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Collect acks and pushes, and commit them all, or none, at the end of the block."""
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
        return await self.engine.transact(self.tenant, steps)

    async def configure(
        self, queue: str, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> Queue:
        """Make a queue or replace its options; what is not named goes back to its default."""
        check_name("queue", queue)
        for label, given in (("namespace", namespace), ("task", task)):
            if given:
                check_name(label, given)
            elif given is not None and not isinstance(given, str):
                raise InvalidRequest(f"{label} must be a string, not {type(given).__name__}")
        checked = queue_options(**options)
        configured = await self.store.queues.configure(
            self.tenant, queue, checked, namespace=namespace or "", task=task or ""
        )
        self.engine.catalogue.forget(configured.id)
        self.engine.catalogue.remember(configured)
        self.store.hint(CATALOGUE)
        return configured

    async def queues(self) -> list[Queue]:
        return await self.store.queues.list(self.tenant)

    async def delete_queue(self, queue: str) -> bool:
        known = await self.store.queues.get(self.tenant, check_name("queue", queue))
        deleted = await self.store.queues.delete(self.tenant, queue)
        if known is not None:
            self.engine.catalogue.forget(known.id)
        self.store.hint(CATALOGUE)
        return deleted

    async def depth(self, queue: str) -> int:
        return await self.store.queues.depth((await self._queue(queue)).id)

    async def groups(self, queue: str) -> list[Group]:
        return await self.store.groups.list((await self._queue(queue)).id)

    async def lanes(self, queue: str, group: str = QUEUE_MODE, *, limit: int = 1000) -> list[LaneState]:
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self.store.groups.lanes((await self._group(queue, group)).id, limit=limit)

    async def seek(self, queue: str, group: str, seek: Seek, *, partition: str | None = None) -> int:
        """Send a group to the beginning, the end, a time or a position; how many lanes moved."""
        if not isinstance(seek, Seek):
            raise InvalidRequest("say where to with a Seek")
        seek.check()
        found = await self._group(queue, group)
        lane = None
        if partition is not None:
            named = await self.store.queues.named(found.queue_id, check_name("partition", partition))
            if named is None:
                raise NotFound(f"queue {queue!r} has no partition {partition!r}")
            lane = named.id
        moved = await self.store.groups.seek(found.id, seek, partition=lane)
        self.engine.announce(found.queue_id, moved)
        return moved

    async def pause(self, queue: str, *, group: str | None = None, partition: str | None = None) -> None:
        """Hand out nothing of a queue, of one group, of one partition for all groups, or of one lane when both are
        named, until it is resumed. Pushes and acks go on."""
        await self.engine.halts.pause(Place(self.tenant, queue, group, partition))

    async def resume(self, queue: str, *, group: str | None = None, partition: str | None = None) -> bool:
        """Undo `pause` of the same; False if it was not paused. A blocked or parked lane begins its attempts anew."""
        return await self.engine.halts.resume(Place(self.tenant, queue, group, partition))

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group; how many."""
        return await self.engine.halts.resume_lanes(Place(self.tenant, queue, group))

    async def explain(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Explanation:
        """Why a lane does not move."""
        return await self.engine.halts.explain(Place(self.tenant, queue, group, partition))

    async def delete_group(self, queue: str, group: str) -> int:
        found = await self._group(queue, group)
        deleted = await self.store.groups.delete(found.id)
        self.engine.catalogue.forget_group(found.queue_id, group)
        return deleted

    async def dead_letters(
        self,
        queue: str,
        where: DeadFilter = _ANY,
        *,
        limit: int = 100,
    ) -> list[DeadLetter]:
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self.store.dead_letters.list((await self._queue(queue)).id, _filter(where), limit=limit)

    async def replay(self, queue: str, where: DeadFilter = _ANY) -> list[tuple[str, str]]:
        """Push dead letters again; (dead letter, new message) ids. A dead letter is replayed once."""
        found = await self._queue(queue)
        replayed = await self.store.dead_letters.replay(found.id, _filter(where))
        self.engine.announce(found.id, len(replayed))
        return replayed

    async def purge(self, queue: str, where: DeadFilter = _ANY) -> int:
        return await self.store.dead_letters.purge((await self._queue(queue)).id, _filter(where))

    async def _queue(self, name: str) -> Queue:
        return await self.engine.catalogue.existing(self.tenant, check_name("queue", name))

    async def _group(self, queue: str, name: str) -> Group:
        found = await self._queue(queue)
        group = await self.store.groups.get(found.id, check_name("group", name))
        if group is None:
            raise NotFound(f"queue {queue!r} has no group {name!r}")
        return group


def _deliveries(given: Delivery | Sequence[Delivery]) -> Sequence[Delivery]:
    if isinstance(given, Batch):
        return given
    some = [given] if isinstance(given, Delivery) else list(given or ())
    if given is None or set(map(type, some)) - {Delivery}:
        raise InvalidRequest("an ack is about what a pop delivered; use ack_many for anything else")
    return some


def _filter(where: DeadFilter) -> DeadFilter:
    if not isinstance(where, DeadFilter):
        raise InvalidRequest("choose dead letters with a DeadFilter")
    return where.check()


def _lease(lease: str | Batch) -> str:
    return lease.lease if isinstance(lease, Batch) else lease
