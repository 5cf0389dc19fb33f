"""The store contract, second part: the families beside the data path. What `store.base` says of all verbs holds here.

None of these reads is counted message by message: numbers come from heads and cursors, and pages from segments.
"""

from __future__ import annotations

from builtins import list as List  # a family has a verb of that name
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import Paused
from fairlane.model.recurring import Advance, Schedule
from fairlane.model.retention import Retained, Step
from fairlane.model.source import Source, SourceStep
from fairlane.model.stats import ActiveLease, GroupStats, LaggingLane, PartitionStats, QueueStats, Standing
from fairlane.model.stream import Registered, StateChange, StateFilter, StateRow, StreamQuery
from fairlane.model.trace import Trace, TraceName
from fairlane.store.values import (
    ActivePartition,
    Duplicates,
    Fired,
    Found,
    Gone,
    Kept,
    MessageHead,
    PushResult,
    Scheduled,
    Settled,
    Settlement,
    Slice,
    Upto,
    Verdicts,
    Waiting,
)

Buried = Literal["dead", "finished", "gone"]


class Contents(Protocol):
    """What queues hold, message by message: looking at it, and taking messages out of the order of the log.

    A message taken out stays where it is until its segment goes; positions keep their meaning. Pops step over it.
    """

    async def active(
        self,
        queue_ids: Sequence[int],
        *,
        name: str | None = None,
        since: int = 0,
        before: tuple[int, PartitionId] | None = None,
        limit: int = 100,
    ) -> List[ActivePartition]:
        """Partitions that hold messages and were written to at or after `since`, latest write first, then greatest
        id first; `before` is (last_at, id) of the last one seen; `name`: only those called so."""
        ...

    async def back(self, where: Sequence[Upto], *, since: int = 0, limit: int = 100) -> List[MessageHead]:
        """Of each partition the newest messages below its bound, up to `limit` of each, created at or after `since`;
        deleted ones are left out. Partitions in the order given, each newest first."""
        ...

    async def traced(self, queue_ids: Sequence[int], trace_id: str, *, limit: int = 10_000) -> List[Found]:
        """Messages of these queues that carry a traceId, in no order; also deleted ones whose rows are still there."""
        ...

    async def with_id(self, queue_ids: Sequence[int], transaction_id: str) -> List[Found]:
        """Where messages of these queues with this transactionId may be, in no order: by the ids that are remembered,
        and by the time inside a UUIDv7. Whoever reads them compares."""
        ...

    async def delete(self, partition: PartitionId, position: int) -> bool:
        """Take a message out for every group, with its dead letters and results; False if it is not there (any more).

        From then on no pop delivers it. Who holds it in a live lease may still ack it. It is not part of the
        queue's depth, and its transactionId may be pushed anew."""
        ...

    async def bury(self, partition: PartitionId, group_id: int, position: int, error: str) -> Buried:
        """Dead-letter a message for one group at once, also behind others that it has not read yet.

        `finished` and nothing done if its cursor has passed the message, or it was given up on before; `gone` if
        there is no such message or group. A seek of the group brings the message back, like any dead letter's; until
        the cursor has passed it, it keeps its place in the queue's depth."""
        ...

    async def clear(self, queue_id: int, *, partition: PartitionId | None = None) -> int:
        """Take out all messages there are, of the queue or of one partition, and end all leases; how many.

        Every group stands at the head afterwards. Dead letters stay. Rows go in bounded steps. NotFound if the
        queue is gone."""
        ...


class Statistics(Protocol):
    """What queues hold, in numbers, and how far groups are."""

    async def queues(self, queue_ids: Sequence[int]) -> List[QueueStats]:
        """One for each queue that is there, in the order asked."""
        ...

    async def partitions(self, queue_id: int, *, after: str = "", limit: int = 1000) -> List[PartitionStats]:
        """Partitions whose name is greater than `after`, by name."""
        ...

    async def groups(self, queue_ids: Sequence[int]) -> List[GroupStats]:
        """One for each group of these queues, in no order."""
        ...

    async def lagging(self, queue_ids: Sequence[int], *, oldest_before: int, limit: int = 1000) -> List[LaggingLane]:
        """Lanes whose first unfinished message came before this time, oldest first."""
        ...

    async def leases(
        self, queue_ids: Sequence[int], *, group: str | None = None, ends_before: int = NEVER_AT, limit: int = 1000
    ) -> List[ActiveLease]:
        """Live leases, of one group or of all, that end before this time unless they are renewed, the next to end
        first."""
        ...

    async def standings(self, partitions: Sequence[PartitionId]) -> List[Standing]:
        """Every group's cursor in these partitions, by partition and group."""
        ...

    async def dead_among(self, places: Sequence[tuple[PartitionId, int]]) -> set[tuple[PartitionId, int]]:
        """Those of the messages that some group gave up on."""
        ...


class Traces(Protocol):
    """What consumers noted of their work, by message and by name."""

    async def add(self, trace: Trace) -> bool:
        """Keep a trace as of now; False if its partition is gone. Adding the same id again changes nothing."""
        ...

    async def of_message(self, partition: PartitionId, transaction_id: str, *, limit: int = 1000) -> List[Trace]:
        """Oldest first."""
        ...

    async def named(self, tenant: str, name: str, *, limit: int = 100, offset: int = 0) -> List[Trace]:
        """Oldest first, over all queues."""
        ...

    async def count_named(self, tenant: str, name: str) -> int: ...

    async def names(self, tenant: str, *, limit: int = 50, offset: int = 0) -> List[TraceName]:
        """Latest seen first."""
        ...

    async def count_names(self, tenant: str) -> int: ...


class Streams(Protocol):
    """Queries over queues, and the state they keep for each partition."""

    async def register(self, tenant: str, query: StreamQuery, *, reset: bool) -> Registered:
        """The query of this name, made with the given id if it is new.

        With the same hash its queues are renewed and its state stays. With another hash and `reset` its state is
        dropped and the hash renewed; without `reset` nothing changes, and the hash returned is the old one."""
        ...

    async def get(self, tenant: str, id: UUID) -> StreamQuery | None: ...

    async def state(
        self, query_id: UUID, partition: PartitionId, where: StateFilter, *, limit: int = 1000
    ) -> List[StateRow]:
        """The first that match, by key in the order of its UTF-8 bytes."""
        ...

    async def cycle(
        self, change: StateChange, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        """`Messages.transact` with the change of state in the same transaction: all of it, or nothing.

        Cycles of one query and partition come one after another. NotFound if the query or the partition is gone."""
        ...


class Switches(Protocol):
    """What operators turned on, for all brokers of the store."""

    async def on(self) -> set[str]:
        """Names of those that are on."""
        ...

    async def turn(self, name: str, on: bool) -> None: ...


class Halts(Protocol):
    """What is kept from being read: paused by an operator, or stopped by a message whose attempts are used up.

    A halt stops handing out and nothing else: pushes, acks and live leases go on, and order is kept."""

    async def pause(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        """Hand out nothing of the queue, of one group, of one partition for all groups, or of one lane (both given:
        it is parked) to pops that begin from now on; False if there is no such thing."""
        ...

    async def resume(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        """Undo the pause of just this thing; False if it was not paused. A lane that is blocked or parked is resumed
        too, and its message's attempts begin anew."""
        ...

    async def resume_lanes(self, group_id: int) -> int:
        """Resume every blocked or parked lane of a group; how many."""
        ...

    async def paused(self, queue_id: int) -> Paused:
        """What is paused of a queue; of its partitions the first thousand of each shard."""
        ...


class WrappedKey(NamedTuple):
    """A key that seals messages of one queue, itself sealed by a key that the operator holds and `kek` names."""

    id: bytes
    queue_id: int
    kek: str
    wrapped: bytes


class DataKeys(Protocol):
    """Keys of encrypted queues, wrapped. They go with their queue."""

    async def add(self, key: WrappedKey) -> None: ...

    async def get(self, ids: Sequence[bytes]) -> List[WrappedKey]: ...

    async def of_queue(self, queue_id: int) -> List[WrappedKey]: ...

    async def under_others(self, kek: str, *, after: bytes, limit: int) -> List[WrappedKey]:
        """Keys that another key than this one wraps, by id after `after`."""
        ...

    async def rewrap(self, key: WrappedKey, *, under: str) -> bool:
        """Replace a key's wrapping, unless another than `under` wraps it by now."""
        ...


class Services(Protocol):
    """Work that one broker at a time does for all. Who leads has a token, greater than every token before it."""

    async def lead(self, name: str, *, seconds: int, early: bool = False) -> int | None:
        """Take the service for so long; the token. None while another leads it, or it rests and this is not
        `early`."""
        ...

    async def keep(self, name: str, token: int, *, seconds: int) -> bool:
        """Lead for so long from now; False if the token is not the leader's (any more)."""
        ...

    async def rest(self, name: str, token: int, *, seconds: int) -> None:
        """Give the service back; nobody takes it for so long, unless early. Nothing happens if another leads."""
        ...


class Retention(Protocol):
    """Deleting what a queue's rules cover, and nothing else.

    With `retention_enabled`: messages `retention_seconds` old, unless they are in a live lease (cursors that stand
    before them are moved), and messages `completed_retention_seconds` old that every group has finished. Dead letters
    by `dead_letter_retention_seconds` alone. An empty partition that was not written to for IDLE_SECONDS goes, with
    its cursors, unless it has dead letters or state. Ids of messages that went may be pushed anew."""

    async def due(self) -> bool:
        """Whether any queue has a rule or had one lately: otherwise a step would find nothing."""
        ...

    async def step(self, token: int, *, limit: int = 50) -> Step:
        """Look at up to `limit` partitions that are due and delete what may go. LeaseLost unless the token is that of
        the leader of RETENTION. What it costs depends on what is due, not on how many partitions there are."""
        ...

    async def history(self, queue_ids: Sequence[int], *, since: int, until: int) -> List[Retained]:
        """What went in this time, oldest first; kept for HISTORY_SECONDS."""
        ...


class Schedules(Protocol):
    """Messages that are kept aside until they are due. They have no position before that, block nobody, and are no part
    of the queue's depth; `created_at` is the time when they are appended."""

    async def add(self, parts: Sequence[Scheduled]) -> List[Kept | Duplicates | Gone]:
        """Keep each part, all of it or nothing, and say which, in order; at most one part a partition and call. A given
        id that waits in the partition already makes its part `Duplicates`, and so does one that is stored there and
        younger than `dedup_seconds`. `Gone`: look again."""
        ...

    async def fire(self, *, limit: int = 1000) -> Fired:
        """Append up to `limit` messages that are due, oldest first, in steps that are atomic: each comes once, whoever
        else fires at the same time. One whose id was stored meanwhile is dropped. What does not fit into a full
        queue waits a second; what has no queue any more is dropped."""
        ...

    async def cancel(self, partition: PartitionId, transaction_id: str) -> bool:
        """Forget the message; False if it does not wait (any more)."""
        ...

    async def reschedule(
        self, partition: PartitionId, transaction_id: str, *, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        """Let the message be due at another time, or after a delay from now; that time, None if it does not wait
        (any more)."""
        ...

    async def list(self, queue_id: int, *, after: tuple[int, str] | None = None, limit: int = 100) -> List[Waiting]:
        """What waits, next due first; `after` is (due_at, message_id) of the last one seen."""
        ...

    async def next_in(self) -> int | None:
        """Microseconds until the next message of any queue is due, below 0 if it is late; None if none waits."""
        ...


class Recurring(Protocol):
    """Schedules, by tenant and name. Each change gives one the revision that the caller made for it."""

    async def put(self, schedule: Schedule) -> Schedule:
        """Make it, or replace what has its name; a paused one stays paused. If the definition is the one that is
        stored, nothing changes. What is stored afterwards."""
        ...

    async def get(self, tenant: str, name: str) -> Schedule | None: ...

    async def list(self, tenant: str) -> List[Schedule]:
        """By name."""
        ...

    async def delete(self, tenant: str, name: str) -> bool: ...

    async def turn(self, tenant: str, name: str, revision: str, next_at: int | None) -> Schedule | None:
        """Pause it with None, or let it go on at a time; None if it is not there. Pausing twice is as good as once."""
        ...

    async def due(self, *, limit: int) -> List[Schedule]:
        """Those of all tenants whose time has come, longest due first."""
        ...

    async def next_in(self) -> int | None:
        """Microseconds until the first one is due, 0 or less if one is; None if none waits."""
        ...

    async def advance(self, step: Advance) -> bool:
        """Let it wait for its next tick; False and nothing done if it has another revision by now."""
        ...

    async def fire(
        self, step: Advance, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        """`Messages.transact` and the step in the same transaction: all of it, or nothing. Conflict if the schedule
        has another revision by now, or is gone."""
        ...


class Seen(NamedTuple):
    """A worker, what it said last, and when."""

    id: str
    facts: str
    seen_at: int


class Workers(Protocol):
    """Workers that told of themselves."""

    async def beat(self, tenant: str, id: str, facts: str, *, keep_seconds: int) -> None:
        """A worker is alive and does this; those that were not for so long are forgotten."""
        ...

    async def list(self, tenant: str, *, seconds: int) -> List[Seen]:
        """Those that were alive in the last seconds, by id."""
        ...

    async def leave(self, tenant: str, id: str) -> bool:
        """A worker ended; False if it was not known."""
        ...


class Sources(Protocol):
    """How far the records of sources were read, who reads them, and what is known of each record.

    Nothing is changed but by `commit`, which makes another revision: what was read of a source and its records is
    true for as long as it has the revision that it had then."""

    async def lease(self, tenant: str, name: str, *, seconds: int) -> Source | None:
        """The source, made if it is not there, under a lease with a token greater than every token before it; None
        while another has a lease."""
        ...

    async def keep(self, tenant: str, name: str, token: int, *, seconds: int) -> Source | None:
        """Let the lease end so many seconds from now; None if it ended, or there is a newer one."""
        ...

    async def release(self, tenant: str, name: str, token: int) -> bool:
        """Let the lease end now; False if it ended before."""
        ...

    async def get(self, tenant: str, name: str) -> Source | None: ...

    async def list(self, tenant: str) -> List[Source]:
        """By name."""
        ...

    async def delete(self, tenant: str, name: str) -> bool:
        """Forget it with all that is known of its records; False if it was not there."""
        ...

    async def known(self, source_id: int, keys: Sequence[str]) -> dict[str, str]:
        """The hashes of those of these records that are known."""
        ...

    async def unseen(self, source_id: int, sweep: int, *, limit: int) -> List[str]:
        """Keys of records that were last seen before this sweep."""
        ...

    async def commit(
        self, step: SourceStep, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        """`Messages.transact` and the step in the same transaction: all of it, or nothing. Conflict if the source has
        another revision by now, LeaseLost if the token is not that of a live lease."""
        ...


class Effects(Protocol):
    """What handlers did once for messages of a partition: each under a key, and for a time."""

    async def get(self, tenant: str, key: str, partition: PartitionId) -> bytes | None: ...

    async def keep(self, tenant: str, key: str, partition: PartitionId, effect: bytes, *, seconds: int) -> bytes:
        """Keep an effect, unless there is one under this key; the one that is kept. Those whose time is over go, some
        with each call."""
        ...
