"""The client: every verb of a broker over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from fairlane.client.browse import Browse
from fairlane.client.buffer import Buffer
from fairlane.client.consume import Consumers
from fairlane.client.dead_letters import DeadLetters
from fairlane.client.groups import Groups
from fairlane.client.operations import QueuedOperation
from fairlane.client.pauses import Pausing
from fairlane.client.pushes import Pushes
from fairlane.client.queues import Queues
from fairlane.client.results import Results
from fairlane.client.retention import Retention
from fairlane.client.retries import Retries
from fairlane.client.scheduled import ScheduledMessages
from fairlane.client.schedules import Schedules
from fairlane.client.servers import Servers
from fairlane.client.sources import Sources
from fairlane.client.specs import Specs
from fairlane.client.transactions import Transactions
from fairlane.client.transport import Transport
from fairlane.client.workers import Workers
from fairlane.errors import InvalidRequest

DEFAULT_SERVER = "http://127.0.0.1:6632"


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
    token: str | None


class Client(
    Pushes,
    Consumers,
    Transactions,
    Queues,
    Browse,
    Results,
    Groups,
    DeadLetters,
    Pausing,
    ScheduledMessages,
    Retention,
    Schedules,
    Workers,
    Sources,
    Specs,
):
    """A connection to one broker, or to several on one store. One event loop; any number of tasks.

        async with Client("http://127.0.0.1:6632") as client:
            await client.push("orders", {"total": 42}, partition="customer-7")

    Pushes and acks that are called while a request is in flight travel together in the next one; `batching=False`
    gives each a request of its own. A push that becomes an operation returns at once with a handle, or with
    `queued_operation="wait"` when it is stored. Calls raise the errors of `fairlane.errors`, after `attempts` where
    repeating may help: see `Retries`.
    """

    def __init__(self, servers: str | Sequence[str] = DEFAULT_SERVER, **options: Unpack[ClientOptions]) -> None:
        timeout = options.pop("timeout", 30.0)
        if timeout <= 0:
            raise InvalidRequest(f"timeout is {timeout}; it must be more than 0 seconds")
        queued_operation = options.pop("queued_operation", "return")
        if queued_operation not in ("return", "wait"):
            raise InvalidRequest(f"queued_operation is `return` or `wait`, not {queued_operation!r:.40}")
        batching, token = options.pop("batching", True), options.pop("token", None)
        retries: Any = options  # all that is left
        transport = Transport(Servers(servers), Retries(**retries).check(), timeout=timeout, token=token)
        super().__init__(transport, batching=batching, queued_operation=queued_operation)

    def buffer(self, *, items_max: int = 1000, bytes_max: int = 1024 * 1024) -> Buffer:
        """A buffer that is flushed when it holds so much, at the end of its block, and when you say so."""
        return Buffer(self, items_max=items_max, bytes_max=bytes_max)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for what is on its way, then close the connections. Consumers are stopped by who started them."""
        await self._drain()
        await self._transport.close()
