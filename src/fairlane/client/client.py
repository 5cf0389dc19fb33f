"""The client: the verbs of a broker over HTTP, under the names that they have there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import Any, TypedDict, TypeVar, Unpack, overload

import msgspec

from fairlane.client.acks import Acks
from fairlane.client.audit import Audit
from fairlane.client.buffer import Buffer
from fairlane.client.consume import Batched, ConsumeOptions, Handler, consumer_of
from fairlane.client.credential import Credential
from fairlane.client.dead_letters import DeadLetters
from fairlane.client.effects import Effects
from fairlane.client.findings import Findings
from fairlane.client.groups import Groups
from fairlane.client.history import History
from fairlane.client.hooks import Hooks
from fairlane.client.keys import Keys
from fairlane.client.messages import Messages
from fairlane.client.operations import Operations, QueuedOperation, QueuedPushes
from fairlane.client.part import Part
from fairlane.client.pauses import Pauses
from fairlane.client.pops import affinity, batch_of, query_of
from fairlane.client.pushes import Pushes, item_of, prepare
from fairlane.client.queues import Queues
from fairlane.client.results import Results
from fairlane.client.retention import Retention
from fairlane.client.retries import Retries
from fairlane.client.scheduled import ScheduledMessages
from fairlane.client.schedules import Schedules
from fairlane.client.servers import Servers
from fairlane.client.sources import Sources
from fairlane.client.specs import Specs
from fairlane.client.status import Status
from fairlane.client.tenants import Tenants
from fairlane.client.traces import Traces
from fairlane.client.transactions import Transaction, outcomes_of
from fairlane.client.transport import Transport, path_of
from fairlane.client.trust import Trust
from fairlane.client.workers import Workers
from fairlane.errors import CommandFailed, FairlaneError, InvalidRequest, Unavailable
from fairlane.model.batch import Batch, acks_of
from fairlane.model.group import Subscription
from fairlane.model.lease import PopOptions, PopRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, RENEW_SECONDS
from fairlane.model.message import Message, PushItem, PushOptions, decoder_of
from fairlane.model.moment import When, moment_or_none
from fairlane.model.names import DEFAULT_PARTITION, DEFAULT_SERVER, QUEUE_MODE, check_count, check_name
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
from fairlane.model.queue import PRIORITY_MAX
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.consumer import Consumer
from fairlane.wire.leases import ExtendBody, Released, Renewed
from fairlane.wire.queen import Maintenance, MaintenanceBody, PopMaintenance
from fairlane.wire.transactions import TransactionAnswer, TransactionBody

Leased = str | Batch[Any] | Message[Any]
"""A lease, or what was given under it."""
T = TypeVar("T")
_ALL = Subscription()
_RESULT_SECONDS, _POLL_SECONDS, _PAUSE_SECONDS = 30.0, 30.0, 0.1


class ClientOptions(TypedDict, total=False):
    """Options of a client besides its servers. `Retries` says what the first five are, and are by default."""

    attempts: int
    retry_delay: float
    max_retry_delay: float
    retry_on_429: bool
    honor_retry_after: bool
    queued_operation: QueuedOperation
    """`return` at once with a handle, as by default, or `wait`."""
    timeout: float
    """Seconds for one request, 30 by default, besides what a pop waits."""
    batching: bool
    reorder: bool
    """Push to another broker while one cannot be reached whose journal has earlier messages of the partition,
    instead of waiting for it."""
    token: str | None
    """A key or token; without one that of FAIRLANE_KEY, or of the file FAIRLANE_KEY_FILE."""
    insecure: bool
    """Send it also unencrypted to other machines."""
    ca_file: str | None
    """The authority of the servers' certificates, PEM; FAIRLANE_CA_FILE if there is none, or what the system trusts."""
    cert_file: str | None
    """A certificate with its key, for a broker that asks for one; FAIRLANE_CERT_FILE if there is none."""


class Client(Part):
    """A connection to one broker, or to several on one store. One event loop; any number of tasks.

        async with Client("http://127.0.0.1:6632") as client:
            await client.push("orders", {"total": 42}, partition="customer-7")
            for queue in await client.queues.list():
                print(queue.name, queue.messages.pending)

    The verbs of messages are its own, the others those of its parts, as with a `Broker`. Pushes and acks that are
    called while a request is in flight travel together in the next one, each partition's in the order of the calls;
    `batching=False` gives each a request of its own. A push that becomes an operation returns at once with a handle, or
    with `queued_operation="wait"` when it is stored. Calls raise the errors of `fairlane.errors`, after `attempts`
    where repeating may help: see `Retries`.
    """

    def __init__(self, servers: str | Sequence[str] = DEFAULT_SERVER, **options: Unpack[ClientOptions]) -> None:
        timeout = options.pop("timeout", 30.0)
        if timeout <= 0:
            raise InvalidRequest(f"timeout is {timeout}; it must be more than 0 seconds")
        queued_operation = options.pop("queued_operation", "return")
        if queued_operation not in ("return", "wait"):
            raise InvalidRequest(f"queued_operation is `return` or `wait`, not {queued_operation!r:.40}")
        batching, reorder = options.pop("batching", True), options.pop("reorder", False)
        credential = Credential(options.pop("token", None), insecure=options.pop("insecure", None))
        trust = Trust.given(options.pop("ca_file", None), options.pop("cert_file", None))
        retries: Any = options  # all that is left
        checked = Retries(**retries).check()
        transport = Transport(Servers(servers), checked, timeout=timeout, credential=credential, trust=trust)
        super().__init__(transport)
        self.queues = Queues(transport)
        self.messages = Messages(transport)
        self.groups = Groups(transport)
        self.dead_letters = DeadLetters(transport)
        self.pauses = Pauses(transport)
        self.scheduled = ScheduledMessages(transport)
        self.schedules = Schedules(transport)
        self.operations = Operations(transport)
        self.results = Results(transport)
        self.retention = Retention(transport)
        self.tenants = Tenants(transport)
        self.specs = Specs(transport)
        self.sources = Sources(transport)
        self.workers = Workers(transport)
        self.traces = Traces(transport)
        self.status = Status(transport)
        self.findings = Findings(transport)
        self.history = History(transport)
        self.hooks = Hooks(transport)
        self.effects = Effects(transport)
        self.keys = Keys(transport)
        self.audit = Audit(transport)
        self._pushes = Pushes(
            transport,
            QueuedPushes(self.operations),
            batching=batching,
            wait=queued_operation == "wait",
            reorder=reorder,
        )
        self._acks = Acks(transport, batching=batching)

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
        """Store one message and return when it is durable. Queue and partition are made when first named.

        With `deliver_at` (a datetime with a zone, a text, or microseconds since 1970) or `delay_ms` (or a timedelta) it
        is `scheduled`: kept aside until then. `priority`, 0 to 9, is the message's in an unordered queue and its
        partition's in an ordered one. A known `transaction_id` is a `duplicate`. A busy broker keeps the message and
        stores it soon: then the outcome is a `QueuedPush`, whose `wait` returns when it is stored; with
        `queued_operation="wait"` this call does. Raises QueueFull when waiting did not help, and OutcomeUnknown when no
        answer came: pushing again with the same transaction_id stores it at most once.
        """
        item = item_of(queue, data, options)
        if deliver_at is not None or delay_ms is not None:
            when = PushItem(queue=queue, payload=b"", deliver_at=deliver_at, delay_ms=delay_ms)
            when.check_time()
            at, item.delay_ms = when.due
            item.deliver_at = moment_or_none(at)
        if priority is not None:
            item.priority = check_count("priority", priority, least=0, most=PRIORITY_MAX)
        return await self._pushes.one(item, own=options.get("transaction_id") is None)

    async def push_many(self, items: Sequence[PushItem]) -> list[PushOutcome]:
        """Store many; one outcome per item. The items of one partition are stored together or refused together."""
        prepared = prepare(items)
        return await self._pushes.many(prepared, [item.transaction_id is None for item in items]) if prepared else []

    def buffer(self, *, items_max: int = 1000, bytes_max: int = 1024 * 1024) -> Buffer:
        """A buffer that is flushed when it holds so much, at the end of its block, and when you say so."""
        return Buffer(self.push_many, items_max=items_max, bytes_max=bytes_max)

    @overload
    async def pop(self, queue: str, *, type: type[T], **options: Unpack[PopOptions]) -> Batch[T]: ...
    @overload
    async def pop(self, queue: str, *, type: Any = ..., **options: Unpack[PopOptions]) -> Batch[Any]: ...
    async def pop(self, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]) -> Batch[Any]:
        """Lease up to `batch` messages from up to `partitions` lanes, waiting up to `wait` seconds for the first.

        Empty when there was nothing. The payloads are decoded as `type`, anything msgspec can decode. `subscription`
        says where a group begins, whether it conflates, and whether it is a look, and counts at its first pop only.
        With `auto_ack` messages are finished when they leave the broker: what is lost on the way is lost.
        """
        asked = PopRequest.of(queue, options)
        path = ["queue", queue] if asked.partition is None else ["queue", queue, "partition", asked.partition]
        read, spans = decoder_of(type), self._transport.spans
        since, key = 0 if spans is None else wall_clock(), affinity(queue, asked.group)
        wait, query = asked.wait_seconds, query_of(asked)
        body = await self._transport.ask("GET", path_of("pop", *path), key=key, query=query, wait=wait)
        found = batch_of(body, read)
        if spans is not None and found:
            spans.received(found, queue, asked.group, since=since)
        return found

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
        queue, group, items = acks_of(messages, status, error, delay_ms, result)
        outcomes = await self._acks.send((queue, group), items)
        return check_leases(outcomes) if check else outcomes

    async def nack(
        self,
        messages: Message[Any] | Sequence[Message[Any]],
        *,
        error: str | None = None,
        delay_ms: timedelta | int | None = None,
        check: bool = True,
    ) -> Sequence[AckOutcome]:
        """These failed: the first of each lane comes again, by the queue's backoff or after `delay_ms`."""
        return await self.ack(messages, "failed", error=error, delay_ms=delay_ms, check=check)

    async def ack_many(
        self, items: Sequence[AckItem], *, group: str = QUEUE_MODE, queue: str = ""
    ) -> Sequence[AckOutcome]:
        """Say different things of messages of one group; one outcome each. If they are all of one `queue`, naming
        it sends the acks where its pops went."""
        check_name("group", group)
        check_acks(items)
        return await self._acks.send((queue, group), items)

    async def renew(self, lease: Leased, seconds: int | None = None) -> RenewOutcome:
        """Keep a lease for `seconds` from now, or longer if it had more left; of a batch for as long as its pop was
        given it, and otherwise for a minute, unless they are given. `renewed` is 0 if it ended."""
        if seconds is None:
            seconds = lease.lease_seconds if isinstance(lease, Batch) else RENEW_SECONDS
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        answer = await self._ask(Renewed, "POST", *_lease_path(lease, "extend"), body=ExtendBody(seconds=seconds))
        return RenewOutcome(answer.renewed, answer.new_expires_at)

    async def release(self, lease: Leased) -> int:
        """Give a lease back at once, without a charge; how many lanes it had."""
        return (await self._ask(Released, "POST", *_lease_path(lease, "release"))).released

    @asynccontextmanager
    async def transaction(self, *, isolation: Isolation = "serializable") -> AsyncIterator[Transaction]:
        """Collect acks and pushes, and commit them all, or none, at the end of the block.

        Nothing is sent if the block raises. Raises TransactionRefused, with the `index` of the step, when one of
        them cannot be done. A commit is repeated when no answer came; what it did before is not done twice.
        `isolation` is the weakest level that will do; every transaction is serializable.
        """
        check_isolation(isolation)
        transaction = Transaction()
        yield transaction
        if transaction.steps:
            body = TransactionBody(transaction.steps, isolation=isolation)
            transaction.outcomes = outcomes_of(await self._ask(TransactionAnswer, "POST", "transaction", body=body))

    async def result(
        self,
        queue: str,
        transaction_id: str,
        *,
        type: Any = Any,
        partition: str = DEFAULT_PARTITION,
        group: str | None = None,
        timeout: float = _RESULT_SECONDS,  # noqa: ASYNC109  # of the broker, over several requests
    ) -> Any:
        """The result of a message, when its handler or command is done with it: what that returned, decoded as `type`,
        or None if it returned nothing. Raises CommandFailed if the message was given up, Unavailable if it is not done
        after `timeout` seconds, and NotFound if no such message came."""
        give_up_at = monotonic() + timeout
        while True:
            wait = min(_POLL_SECONDS, max(0.0, give_up_at - monotonic()))
            found = await self.results.get(queue, transaction_id, partition=partition, group=group, wait=wait)
            if found.over or monotonic() >= give_up_at:
                break
            await asyncio.sleep(_PAUSE_SECONDS)  # a broker that stops answers early
        if found.status == "dead_letter":
            raise CommandFailed(f"message {transaction_id!r:.80} was given up: {found.error}")
        if not found.over:
            raise Unavailable(f"message {transaction_id!r:.80} is {found.status} still, after {timeout:g} s")
        try:
            return msgspec.json.decode(found.raw, type=type)
        except msgspec.DecodeError as error:
            raise FairlaneError(f"the result of message {transaction_id!r:.80} is another: {error}") from None

    @overload
    async def consume(
        self, queue: str, handler: Handler[T] | Batched[T], *, type: type[T], **options: Unpack[ConsumeOptions]
    ) -> int: ...
    @overload
    async def consume(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = ..., **options: Unpack[ConsumeOptions]
    ) -> int: ...
    async def consume(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = Any, **options: Unpack[ConsumeOptions]
    ) -> int:
        """Give the messages of a queue to `handler`, one by one, until the limit or idleness, if there is one; how
        many it was given.

        What it returns is a verdict: None or `Done` finishes a message, `Fail` or an exception is a failed attempt,
        `Retry` asks for it again later, `Dead` makes it a dead letter. Cancel it to end it at once; `consumer` gives
        an object that can be stopped gracefully.
        """
        return await consumer_of(self, queue, handler, type, options).run()

    @overload
    def consumer(
        self, queue: str, handler: Handler[T] | Batched[T], *, type: type[T], **options: Unpack[ConsumeOptions]
    ) -> Consumer: ...
    @overload
    def consumer(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = ..., **options: Unpack[ConsumeOptions]
    ) -> Consumer: ...
    def consumer(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = Any, **options: Unpack[ConsumeOptions]
    ) -> Consumer:
        """The same as an object: `async with client.consumer(...)`, or `await consumer.run()` and `consumer.stop()`."""
        return consumer_of(self, queue, handler, type, options)

    async def pause_pops(self, paused: bool) -> None:
        """Let pops answer that there is nothing, at every broker of the store within two seconds; or go on."""
        await self._ask(PopMaintenance, "POST", "system", "maintenance", "pop", body=MaintenanceBody(enabled=paused))

    async def pause_pushes(self, paused: bool) -> None:
        """Keep pushes in the journals of all brokers; or store them. Raises NotAvailable without a journal."""
        await self._ask(Maintenance, "POST", "system", "maintenance", body=MaintenanceBody(enabled=paused))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for what is on its way, then close the connections. Consumers are stopped by who started them."""
        await self._pushes.drain()
        await self._acks.drain()
        await self._transport.close()


def _lease_path(lease: Leased, verb: str) -> tuple[str, ...]:
    return "lease", check_name("lease", lease if isinstance(lease, str) else lease.lease), verb
