"""The broker: the verbs of the queue, in your process, on a file or a PostgreSQL URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from os import PathLike
from typing import Any, Self, TypeVar, Unpack

import msgspec

from fairlane import server_extra as _extra  # noqa: F401
from fairlane.broker.ack import AckRequest
from fairlane.broker.admission import PATIENT, Kind, Limit
from fairlane.broker.audit import KEEP_SECONDS
from fairlane.broker.cancellations import Cancellations
from fairlane.broker.dead_letters import DeadLetters
from fairlane.broker.deferral.drain import FAILED_SECONDS
from fairlane.broker.deferral.operations import Operations
from fairlane.broker.deferral.store_timeout import STORE_TIMEOUT_SECONDS
from fairlane.broker.effects import Effects
from fairlane.broker.engine import TENANTS_MAX, Engine, build_engine
from fairlane.broker.fan_ins import FanIns
from fairlane.broker.groups import Groups
from fairlane.broker.health_findings import Findings
from fairlane.broker.history import History
from fairlane.broker.keys import Keys
from fairlane.broker.messages import Messages
from fairlane.broker.pauses import Pauses
from fairlane.broker.process_services import ProcessServices
from fairlane.broker.queue_findings import QueueFindings
from fairlane.broker.queues import Queues
from fairlane.broker.requests import Requests, checked_push
from fairlane.broker.resource import Resource
from fairlane.broker.results import Results
from fairlane.broker.retention import Retention
from fairlane.broker.scheduled import ScheduledMessages
from fairlane.broker.schedules import Schedules
from fairlane.broker.search import Search
from fairlane.broker.sources import Sources
from fairlane.broker.specs import Specs
from fairlane.broker.staged import Staged
from fairlane.broker.status import Status
from fairlane.broker.transact import Outcome, Step
from fairlane.broker.transaction import Transaction, check_steps, item_of
from fairlane.broker.webhook_receiver import WebhookReceiver
from fairlane.broker.webhooks import Webhooks
from fairlane.broker.workers import Workers
from fairlane.config import SECRET_NAMES
from fairlane.errors import FairlaneError
from fairlane.model.batch import AckedAndPopped, Batch, Finished, acks_of, acks_with_pop
from fairlane.model.decoding import decoder_of
from fairlane.model.fan_in import FanInMessage, FanInOptions, FanInStep
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId, PopOptions, PopRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, POLLS_MAX, RENEW_SECONDS
from fairlane.model.message import (
    Message,
    PushItem,
    PushOptions,
    check_payloads,
)
from fairlane.model.names import DEFAULT_TENANT, QUEUE_MODE, check_count, check_name
from fairlane.model.outcome import (
    AckItem,
    AckOutcome,
    AckStatus,
    Isolation,
    PushOutcome,
    RenewOutcome,
    check_acks,
    check_isolation,
    check_leases,
)
from fairlane.otel import tracing
from fairlane.outbound.addresses import Allowed
from fairlane.runtime.clock import Clock
from fairlane.runtime.peer_processes import PeerProcesses
from fairlane.store.contract.values import Renewal
from fairlane.store.opening import open_journal, open_or_wait, store_url

JOURNAL_BYTES_MAX = 1024**3

R = TypeVar("R", bound=Resource)


class Broker:
    """The verbs of the queue and its resources, for one tenant. One event loop; any number of tasks."""

    def __init__(self, engine: Engine, tenant: str = DEFAULT_TENANT, views: dict[str, Any] | None = None) -> None:
        """Create the view of a tenant. `views` has the brokers of other tenants over the same engine."""
        self._engine = engine
        self._scope = scope = engine.scope(tenant)
        self._views: dict[str, Any] = {tenant: self} if views is None else views
        self.tenant = tenant
        self.requests = Requests(scope)
        self.process = ProcessServices(engine)
        self.tenants = engine.tenants
        self.audit = engine.audit
        self.keys = Keys(engine.store, tenant, engine.credentials, scope.quota)
        self.history = History(scope)
        self.queues = Queues(scope, self.history)
        self.groups = Groups(scope)
        self.dead_letters = DeadLetters(scope)
        self.messages = Messages(scope, self.dead_letters)
        self.scheduled = ScheduledMessages(scope)
        self.staged = Staged(scope)
        self.sources = Sources(scope)
        self.results = Results(scope)
        self.schedules = Schedules(scope, self.results)
        self.cancellations = Cancellations(scope)
        self.cancel = self.cancellations.cancel
        self.operations = Operations(scope)
        self.search = Search(scope, self.messages.browse, self.operations)
        self.pauses = Pauses(scope)
        self.specs = Specs(scope)
        self.webhooks = Webhooks(scope, WebhookReceiver(scope, self.results, self.dead_letters))
        self.workers = Workers(scope)
        self.effects = Effects(scope)
        self.fan_ins = FanIns(scope)
        self.retention = Retention(scope)
        self.status = Status(scope)
        of_queues = QueueFindings(scope, self.queues, self.dead_letters, self.schedules, self.workers)
        self.findings = Findings(scope, self.status, self.webhooks, of_queues)

    def of(self, tenant: str) -> Self:
        """Return this broker scoped to another tenant. Both share the engine; stopping either stops both."""
        found: Self | None = self._views.get(tenant)
        if found is None or found._scope is not self._engine.scopes.get(tenant):
            if len(self._views) > TENANTS_MAX:
                self._views.clear()
            found = self._views[tenant] = type(self)(self._engine, tenant, self._views)
        return found

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
        store_timeout_seconds: float = STORE_TIMEOUT_SECONDS,
        outbound_allow: str = "",
        secret_names: str = SECRET_NAMES,
        audit_seconds: int = KEEP_SECONDS,
        peer_processes: PeerProcesses | None = None,
        **options: Any,
    ) -> AsyncIterator[Broker]:
        """Open a broker on a file like `queue.db`, `sqlite:///path`, `sqlite:///:memory:` or `postgresql://...`.

        Up to `polls_max` pops may wait at once. Closing it answers all callers first. It applies retention rules every
        `retention_interval` seconds; 0 leaves that to other brokers. Failed operations are kept for
        `failed_operations_seconds`, 0 for ever.

        `journal` is a directory for pushes and acks while the store is unavailable. With it, a broker on PostgreSQL
        starts without its database. A flush that takes longer than `store_timeout_seconds` goes to the journal.
        `limits` decide when a busy broker defers or refuses pushes and acks; without them it never does, because
        callers in the same process wait anyway. `outbound_allow` lists internal hosts and networks that commands of
        specs may call, `secret_names` environment variables that specs may read, both separated by commas.
        """
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
            from fairlane.broker.traced_broker import TracedBroker as cls
        engine = build_engine(
            store,
            polls_max=polls_max,
            journal=opened,
            limits=limits,
            store_timeout_seconds=store_timeout_seconds,
            allowed=allowed,
            secret_names=secret_names,
            failed_operations_seconds=failed_operations_seconds,
            audit_seconds=audit_seconds,
            peer_processes=peer_processes,
        )
        broker = cls(engine)
        engine.retention_service.start(retention_interval)
        try:
            await engine.start()
            yield broker
        finally:
            await broker.close()

    async def stop(self) -> None:
        """Accept nothing new, end long polls with an empty answer, and finish the rest."""
        await self._engine.stop()

    async def close(self) -> None:
        """Stop, and close the store and the journal."""
        await self._engine.close()

    async def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> PushOutcome:
        """Store one message and return when it is durable. Raises QueueFull. A known transactionId is a `duplicate`.

        With a time or a delay the message is `scheduled` until then. `priority` is 0 to 9.
        """
        [outcome] = await self.requests.push(checked_push(self.tenant, [item_of(queue, data, options)]))
        if outcome.error is not None:
            raise outcome.error
        return outcome

    async def push_many(self, items: Sequence[PushItem]) -> list[PushOutcome]:
        """Store messages, and return one outcome each. Those of one partition are stored or refused together."""
        request = checked_push(self.tenant, items)
        check_payloads(items)
        return await self.requests.push(request)

    async def pop(self, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]) -> Batch[Any]:
        """Lease up to `batch` messages from up to `partitions` lanes, waiting up to `wait` seconds for the first.

        Payloads are decoded as `type`, which is any type that msgspec supports.
        """
        popped = await self.requests.pop(PopRequest.of(queue, options, self.tenant))
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
        """Ack messages of one group with the same verdict. Returns one outcome for each.

        Raises LeaseLost if the lease of some had ended, after the others were acked. With `check=False` that is an
        outcome.
        """
        _, group, items = acks_of(messages, status, error, delay_ms, result)
        outcomes = await self.requests.ack(AckRequest(self.tenant, group or QUEUE_MODE, items))
        return check_leases(outcomes) if check else outcomes

    async def ack_many(
        self, items: Sequence[AckItem], *, group: str = QUEUE_MODE, queue: str = ""
    ) -> Sequence[AckOutcome]:
        """Ack messages with different verdicts. Returns one outcome each. A client chooses the broker by `queue`."""
        check_name("group", group)
        check_acks(items)
        return await self.requests.ack(AckRequest(self.tenant, group, items))

    async def ack_and_pop(
        self, done: Finished, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]
    ) -> AckedAndPopped:
        """Ack messages, or like `ack_many`, and pop, in one transaction of the store if they are of this queue.

        The acks are applied at once, also if the pop waits. If the pop fails after them, the answer has its error.
        """
        request = PopRequest.of(queue, options, self.tenant)
        items = acks_with_pop(done, request.group)
        outcomes, popped = await self.requests.ack_and_pop(AckRequest(self.tenant, request.group, items), request)
        if isinstance(popped, FairlaneError):
            return AckedAndPopped(outcomes, Batch(""), popped)
        return AckedAndPopped(outcomes, popped.batch(decoder_of(type)))

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
        """Extend a lease to at least `seconds` from now.

        The default is the length that its pop requested for a batch, and otherwise a minute.
        """
        if seconds is None:
            seconds = lease.lease_seconds if isinstance(lease, Batch) else RENEW_SECONDS
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        self._engine.admission.check_running()
        parsed = LeaseId.parse(_lease(lease))
        if parsed is None or await self._engine.catalogue.queue_of(self.tenant, parsed.group_id) is None:
            return RenewOutcome(0, None)
        renewal = self._engine.admission.renewals.submit(Renewal(parsed, seconds))
        return await self._engine.telemetry.measure(self._engine.telemetry.renew_lease, 1, renewal)

    async def release(self, lease: str | Batch[Any], *, partition: PartitionId | None = None) -> int:
        """Release a lease without counting an attempt. Returns the number of lanes."""
        self._engine.admission.check_running()
        parsed = LeaseId.parse(_lease(lease))
        queue_id = None if parsed is None else await self._engine.catalogue.queue_of(self.tenant, parsed.group_id)
        if parsed is None or queue_id is None:
            return 0
        released = await self._engine.store.messages.release(parsed, partition=partition)
        self._engine.waiters.wake_group(parsed.group_id, released)
        self._engine.store.hint(queue_id)
        return released

    @asynccontextmanager
    async def transaction(self, *, isolation: Isolation = "serializable") -> AsyncIterator[Transaction]:
        """Collect acks and pushes, and commit all of them or none at the end of the block.

        `isolation` is the weakest acceptable level. Every transaction is serializable.
        """
        check_isolation(isolation)
        transaction = Transaction()
        yield transaction
        if transaction.steps or transaction.fan_ins:
            transaction.outcomes = await self.transact(transaction.steps, transaction.fan_ins)

    async def transact(self, steps: Sequence[Step], fan_ins: Sequence[FanInStep] = ()) -> list[Outcome]:
        check_steps(steps, fan_ins)
        return await self.requests.transact(steps, fan_ins=fan_ins)

    async def fan_in(self, parts: Sequence[FanInMessage], then: FanInMessage, **options: Unpack[FanInOptions]) -> str:
        """Push messages, and `then` once after the ends of all of them. Returns the id of the fan-in."""
        async with self.transaction() as transaction:
            return transaction.fan_in(parts, then, **options)

    def resource(self, kind: type[R]) -> R:
        """Return a resource of another package, for this tenant."""
        return kind(self._scope)


def _lease(lease: str | Batch[Any]) -> str:
    return lease.lease if isinstance(lease, Batch) else lease
