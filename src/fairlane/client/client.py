"""The client: the methods of `Broker` over HTTP, under the same names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar, Unpack, overload

import msgspec

from fairlane.client.ack_and_pops import AckAndPops
from fairlane.client.acks import Acks
from fairlane.client.audit import Audit
from fairlane.client.buffer import Buffer
from fairlane.client.cancellations import Cancellations
from fairlane.client.consume import AnyHandler, ConsumeOptions, consumer_of
from fairlane.client.credential import Credential
from fairlane.client.dead_letters import DeadLetters
from fairlane.client.fan_ins import FanIns
from fairlane.client.groups import Groups
from fairlane.client.keys import Keys
from fairlane.client.messages import Messages
from fairlane.client.monitoring import Cells, Findings, History, Status
from fairlane.client.operations import Operations, PushHandle, QueuedPushes
from fairlane.client.options import ClientOptions
from fairlane.client.pauses import Pauses
from fairlane.client.pops import Pops
from fairlane.client.pushes import Pushes, item_of, prepare
from fairlane.client.queues import Queues
from fairlane.client.resource import ClientResource
from fairlane.client.results import Results
from fairlane.client.retention import Retention
from fairlane.client.retries import Retries
from fairlane.client.scheduled import ScheduledMessages
from fairlane.client.schedules import Schedules
from fairlane.client.servers import Servers
from fairlane.client.sources import Sources
from fairlane.client.specs import Specs
from fairlane.client.staged import Staged
from fairlane.client.tenants import Tenants
from fairlane.client.tls import TlsOptions
from fairlane.client.traces import Traces
from fairlane.client.transactions import Transaction, outcomes_of
from fairlane.client.transport import Transport
from fairlane.client.webhooks import Webhooks
from fairlane.client.workers import Effects, Workers
from fairlane.errors import CommandFailed, FairlaneError, InvalidRequest, MessageCancelled, NotFound, Unavailable
from fairlane.model.batch import AckedAndPopped, Batch, Finished, acks_of, acks_with_pop
from fairlane.model.decoding import decoder_of
from fairlane.model.fan_in import FanInMessage, FanInOptions
from fairlane.model.group import Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.lease import PopOptions, PopRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, RENEW_SECONDS
from fairlane.model.message import Message, PushItem, PushOptions
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
from fairlane.runtime.consumer import Consumer
from fairlane.wire.cancellations import CancelledMessage
from fairlane.wire.leases import ExtendBody, Released, Renewed
from fairlane.wire.transactions import TransactionAnswer, TransactionBody

Leased = str | Batch[Any] | Message[Any]
"""A lease id, or a batch or message that was popped under the lease."""
T = TypeVar("T")
_ALL = Subscription()
_RESULT_SECONDS, _POLL_SECONDS, _PAUSE_SECONDS = 30.0, 30.0, 0.1


class Client(ClientResource):
    """A client of one broker, or of several on one store. Belongs to one event loop; any number of tasks may use it.

        async with Client("http://127.0.0.1:6632") as client:
            await client.push("orders", {"total": 42}, partition="customer-7")
            for queue in await client.queues.all():
                print(queue.name, queue.messages.pending)

    Methods for messages are on the client, all others on its resources, as with a `Broker`. Pushes and acks made while
    a request is in flight share the next request, in order within each partition; `batching=False` sends each in its
    own. A push that becomes an operation returns at once with a handle, or, with `queued_operation="wait"`, when it is
    stored. Calls raise the errors of `fairlane.errors`, after the retries that `Retries` describes.
    """

    def __init__(self, servers: str | Sequence[str] = DEFAULT_SERVER, **options: Unpack[ClientOptions]) -> None:
        if (timeout := options.pop("timeout", 30.0)) <= 0:
            raise InvalidRequest(f"timeout is {timeout}; it must be more than 0 seconds")
        queued_operation = options.pop("queued_operation", "return")
        if queued_operation not in ("return", "wait"):
            raise InvalidRequest(f"queued_operation must be 'return' or 'wait', not {queued_operation!r:.40}")
        batching, reorder = options.pop("batching", True), options.pop("reorder", False)
        credential = Credential(options.pop("token", None), insecure=options.pop("insecure", None))
        tls = TlsOptions.from_environment(options.pop("ca_file", None), options.pop("cert_file", None))
        retries: Any = options  # the remaining options are those of Retries
        checked = Retries(**retries).check()
        transport = Transport(Servers(servers), checked, timeout=timeout, credential=credential, tls_options=tls)
        super().__init__(transport)
        self.queues = Queues(transport)
        self.messages = Messages(transport)
        self.groups = Groups(transport)
        self.dead_letters = DeadLetters(transport)
        self.pauses = Pauses(transport)
        self.scheduled = ScheduledMessages(transport)
        self.schedules = Schedules(transport)
        self.fan_ins = FanIns(transport)
        self.operations = Operations(transport)
        self.results = Results(transport)
        self.cancellations = Cancellations(transport)
        self.retention = Retention(transport)
        self.tenants = Tenants(transport)
        self.specs = Specs(transport)
        self.sources = Sources(transport)
        self.staged = Staged(transport)
        self.workers = Workers(transport)
        self.traces = Traces(transport)
        self.status = Status(transport)
        self.findings = Findings(transport)
        self.cells = Cells(transport)
        self.history = History(transport)
        self.webhooks = Webhooks(transport)
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
        self._pops = Pops(transport)
        self._ack_and_pops = AckAndPops(transport, self._acks, self._pops)

    async def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> PushHandle:
        """Push one message and return when it is durable. Creates the queue and the partition if necessary.

        With `deliver_at` (a datetime with a time zone, a text or microseconds) or `delay_ms` the message is scheduled.
        `priority`, 0 to 9, applies to the message in an unordered queue and to its partition in an ordered one. A known
        id, or a `unique` message that another one excludes, is a `duplicate`.

        A busy broker accepts the message and stores it soon. The outcome is then a `QueuedPush`, whose `wait` returns
        when it is stored; with `queued_operation="wait"` this call waits. Raises QueueFull if the queue stays full, and
        OutcomeUnknown if no answer came: pushing again with the same transaction_id stores the message at most once.
        """
        item = item_of(queue, data, options)
        outcome = await self._pushes.one(item, own=options.get("transaction_id") is None)
        return PushHandle.of(outcome, queue, item, self._result_of, self.results.get)

    async def push_many(self, items: Sequence[PushItem]) -> list[PushOutcome]:
        """Store many messages and return one outcome per item.

        The items of one partition are stored together or refused together.
        """
        prepared = prepare(items)
        return await self._pushes.many(prepared, [item.transaction_id is None for item in items]) if prepared else []

    def buffer(self, *, items_max: int = 1000, bytes_max: int = 1024 * 1024) -> Buffer:
        """Return a buffer that flushes when it is full, at the end of its `with` block, and on `flush`."""
        return Buffer(self.push_many, items_max=items_max, bytes_max=bytes_max)

    @overload
    async def pop(self, queue: str, *, type: type[T], **options: Unpack[PopOptions]) -> Batch[T]: ...
    @overload
    async def pop(self, queue: str, *, type: Any = ..., **options: Unpack[PopOptions]) -> Batch[Any]: ...
    async def pop(self, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]) -> Batch[Any]:
        """Lease up to `batch` messages from up to `partitions` lanes, waiting up to `wait` seconds for the first.

        The batch is empty if no message arrived in time. Payloads are decoded as `type`, any type that msgspec can
        decode. `subscription` sets the start of a new group and whether it conflates; it only matters at the group's
        first pop. With `auto_ack` messages count as done when they leave the broker, so a lost answer loses them.
        """
        return await self._pops.pop(PopRequest.of(queue, options), type)

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
        """Ack messages of one group with the same status, and return one outcome per message.

        Raises LeaseLost if a lease has ended, unless `check` is False. The other messages are still acked.
        """
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
        """Report a failed attempt: each lane's first message is retried after `delay_ms` or the queue's backoff."""
        return await self.ack(messages, "failed", error=error, delay_ms=delay_ms, check=check)

    async def ack_many(
        self, items: Sequence[AckItem], *, group: str = QUEUE_MODE, queue: str = ""
    ) -> Sequence[AckOutcome]:
        """Ack messages of one group, each with its own status, and return one outcome per message.

        Pass `queue` if all messages are from one queue: the acks then go to the server that answered its pops, which is
        faster.
        """
        check_name("group", group)
        check_acks(items)
        return await self._acks.send((queue, group), items)

    async def ack_and_pop(
        self, done: Finished, queue: str, *, type: Any = Any, **options: Unpack[PopOptions]
    ) -> AckedAndPopped:
        """Ack messages, or like `ack_many`, and pop in one request. The acks are applied at once, also if it waits.

        If the pop fails after them, the answer has its error.
        """
        asked = PopRequest.of(queue, options)
        return await self._ack_and_pops.send(acks_with_pop(done, asked.group), asked, type)

    async def renew(self, lease: Leased, seconds: int | None = None) -> RenewOutcome:
        """Extend a lease to `seconds` from now; a lease is never shortened.

        The default is the lease time of the pop for a batch, and one minute otherwise. `renewed` is 0 after its end.
        """
        if seconds is None:
            seconds = lease.lease_seconds if isinstance(lease, Batch) else RENEW_SECONDS
        check_count("seconds", seconds, least=1, most=LEASE_SECONDS_MAX)
        answer = await self._call(Renewed, "POST", *_lease_path(lease, "extend"), body=ExtendBody(seconds=seconds))
        cancelled = [(PartitionId.parse(one.partition_id), one.position) for one in answer.cancelled]
        return RenewOutcome(answer.renewed, answer.new_expires_at, cancelled)

    async def release(self, lease: Leased) -> int:
        """End a lease at once without charging an attempt. Returns the number of lanes that it held."""
        return (await self._call(Released, "POST", *_lease_path(lease, "release"))).released

    @asynccontextmanager
    async def transaction(self, *, isolation: Isolation = "serializable") -> AsyncIterator[Transaction]:
        """Collect acks and pushes, and commit all or none of them at the end of the block.

        Nothing is sent if the block raises. Raises TransactionRefused, with the `index` of the step, if a step is
        refused. A commit without an answer is retried, and never applied twice. `isolation` is the weakest acceptable
        level; every transaction is serializable.
        """
        check_isolation(isolation)
        transaction = Transaction()
        yield transaction
        if transaction.steps:
            body = TransactionBody(transaction.steps, isolation=isolation)
            transaction.outcomes = outcomes_of(await self._call(TransactionAnswer, "POST", "transaction", body=body))

    async def cancel(
        self, queue: str, transaction_id: str, *, partition: str = DEFAULT_PARTITION, group: str | None = None
    ) -> CancelledMessage:
        """Cancel a message that is scheduled, waits or is being handled.

        It is not delivered again and is no dead letter, and the other messages of its partition go on. A worker that
        handles it stops within a second, and its ack is refused. By default it is cancelled for every group that has
        not finished it. A repeated call is a no-op. Raises NotFound if there is no such message, and Conflict if it is
        finished.
        """
        return await self.cancellations.cancel(queue, transaction_id, partition=partition, group=group)

    async def fan_in(self, parts: Sequence[FanInMessage], then: FanInMessage, **options: Unpack[FanInOptions]) -> str:
        """Push messages, and `then` once after the ends of all of them. Returns the id of the fan-in."""
        async with self.transaction() as transaction:
            return transaction.fan_in(parts, then, **options)

    async def result(
        self,
        queue: str,
        transaction_id: str,
        *,
        type: Any = Any,
        partition: str | PartitionId = DEFAULT_PARTITION,
        group: str | None = None,
        timeout: float = _RESULT_SECONDS,  # noqa: ASYNC109  # of the broker, over several requests
    ) -> Any:
        """Wait until a message is handled, and return what its handler returned, decoded as `type`.

        Returns None if the handler returned nothing. Raises CommandFailed if the message was dead-lettered,
        MessageCancelled if it was cancelled, Unavailable if it is not handled within `timeout` seconds, and NotFound if
        the message does not exist.
        """
        decode, give_up_at = decoder_of(type), monotonic() + timeout
        while True:
            wait = min(_POLL_SECONDS, max(0.0, give_up_at - monotonic()))
            found = await self.results.get(queue, transaction_id, partition=partition, group=group, wait=wait)
            if found.over or monotonic() >= give_up_at:
                break
            await asyncio.sleep(_PAUSE_SECONDS)  # a broker that is stopping answers early
        if found.status == "dead_letter":
            raise CommandFailed(f"message {transaction_id!r:.80} is a dead letter: {found.error}")
        if found.status == "cancelled":
            raise MessageCancelled(f"message {transaction_id!r:.80} was cancelled")
        if not found.over:
            raise Unavailable(f"message {transaction_id!r:.80} is still {found.status} after {timeout:g} s")
        try:
            return decode(found.raw)
        except msgspec.DecodeError as error:
            raise FairlaneError(
                f"the result of message {transaction_id!r:.80} does not match the requested type: {error}"
            ) from None

    async def _result_of(
        self,
        queue: str,
        transaction_id: str,
        partition: str | PartitionId,
        is_coming: bool,
        *,
        type: Any,
        group: str | None,
        timeout: float,  # noqa: ASYNC109  # of the broker, over several requests
    ) -> Any:
        """Return the result of a message that this client pushed. `is_coming` is True if it may not be stored yet."""
        give_up_at = monotonic() + timeout
        while True:
            left = max(0.0, give_up_at - monotonic())
            try:
                return await self.result(
                    queue, transaction_id, type=type, partition=partition, group=group, timeout=left
                )
            except NotFound:
                if not is_coming:
                    raise
                if not left:
                    raise Unavailable(f"message {transaction_id!r:.80} still waits after {timeout:g} s") from None
            await asyncio.sleep(min(left, _PAUSE_SECONDS))

    @overload
    async def consume(
        self, queue: str, handler: AnyHandler[T], *, type: type[T], **options: Unpack[ConsumeOptions]
    ) -> int: ...
    @overload
    async def consume(
        self, queue: str, handler: AnyHandler[Any], *, type: Any = ..., **options: Unpack[ConsumeOptions]
    ) -> int: ...
    async def consume(
        self, queue: str, handler: AnyHandler[Any], *, type: Any = Any, **options: Unpack[ConsumeOptions]
    ) -> int:
        """Run `handler` for each message of a queue, until `limit` or `idle_seconds` is reached.

        Returns the number of handled messages. The handler returns a verdict: None or `Done` completes the message,
        `Fail` or an exception is a failed attempt, `Retry` asks for redelivery later, and `Dead` makes it a dead
        letter. Cancel the call to stop at once; use `consumer` for an object that can be stopped gracefully.
        """
        return await consumer_of(self, queue, handler, type, options).run()

    @overload
    def consumer(
        self, queue: str, handler: AnyHandler[T], *, type: type[T], **options: Unpack[ConsumeOptions]
    ) -> Consumer: ...
    @overload
    def consumer(
        self, queue: str, handler: AnyHandler[Any], *, type: Any = ..., **options: Unpack[ConsumeOptions]
    ) -> Consumer: ...
    def consumer(
        self, queue: str, handler: AnyHandler[Any], *, type: Any = Any, **options: Unpack[ConsumeOptions]
    ) -> Consumer:
        """Return a consumer object for `async with`, or for `await consumer.run()` and `consumer.stop()`."""
        return consumer_of(self, queue, handler, type, options)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for calls in flight, then close the connections. Stop any consumers first."""
        await self._pushes.drain()
        await self._acks.drain()
        await self._transport.close()


def _lease_path(lease: Leased, verb: str) -> tuple[str, ...]:
    return "lease", check_name("lease", lease if isinstance(lease, str) else lease.lease), verb
