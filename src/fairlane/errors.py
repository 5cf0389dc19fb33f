"""The error tree: every error that Fairlane raises on purpose.

    FairlaneError
    |- InvalidRequest       the caller's fault, never retry
    |   |- SpecError        a spec is wrong at a line and column
    |   |- PayloadInvalid   a message does not fit the type of its queue
    |   '- ExpressionFailed a message has not what an expression of a spec needs
    |       '- ExpressionTooCostly   it would take too much work, or make too much of it, whenever it is tried
    |- NotFound             the queue, group, partition or message is not there
    |- Conflict             the state does not allow it
    |   |- LeaseLost        the lease ended, or was never this group's
    |   |- AlreadyExists
    |   |- OptionsChanged       somebody else changed the options of the queue meanwhile
    |   |- ConfigMismatch       a stream of this name was registered with another configuration
    |   |- NotAvailable         this broker was not started with what it takes
    |   |- ConsentNeeded        a spec would lose, refuse or expose messages, and nobody agreed to that
    |   |- TransactionRefused   one of its operations was refused; nothing was applied
    |   |   |- AlreadyApplied   its acks were applied by an earlier try, and its pushes with them
    |   |   '- StateMoved       a cycle without an ack met a consumer of its stream
    |   |- AckRefused           the ack of one message
    |   |   |- Unresolvable     no such message in the lease or the partition
    |   |   |- NotDelivered     the message was not handed out yet
    |   |   |- Committed        a nack came too late: the message is finished
    |   |   '- Redelivered      an earlier message of the same call failed, so this one comes again
    |   '- OperationFailed      what was accepted was given up on later; the operation says why
    |- Unauthenticated      a signature or credential is missing, or is not good
    |- Forbidden            the caller is known, and has not the scope for it
    |   '- QuotaReached     the tenant has as many as it may: waiting does not help
    |- CommandFailed        what carries out a command refused it or did not answer; `retryable` says which
    |- Overloaded           try again after `retry_after` seconds
    |   |- QueueFull        the queue is at its capacity
    |   |- OverQuota        the tenant has as much as it may at once
    |   '- JournalFull      the store is away and the journal has no room either
    |- BrokerFailed         the broker met a defect of its own; its log says more
    '- Unavailable          the store or the broker cannot answer now; retry
        |- StoreUnavailable
        |   |- StoreRefused the database, the role or the URL is wrong: waiting does not help
        |   '- StoreFull    its disk has no room
        |- StoreUnsafe      the store would lose data: refused to start
        |- StoreCorrupt     stored bytes do not match their checksum
        |   '- SealError    a message cannot be sealed or opened: no key, another key, or changed bytes
        |- LaneWaiting      operations wait in a partition that a transaction or a sealed replay would append to
        |- LaneLocked       somebody else holds the partition for too long; nothing was applied
        |- ShuttingDown
        |- TooManyPolls     as many long polls wait as the broker lets
        '- OutcomeUnknown   the commit's fate is not known; retry with the same transactionId

`code` is stable and travels on the wire; `retryable` says whether the same call may succeed later.
"""

from __future__ import annotations


class FairlaneError(Exception):
    code = "error"
    retryable = False


class InvalidRequest(FairlaneError):
    code = "invalid_request"


class SpecError(InvalidRequest):
    """An error of a spec: `line` and `column` count from 1; `excerpt` shows the line with a mark beneath the place;
    `hint` helps."""

    code = "spec_error"

    def __init__(
        self, message: str, *, file: str, line: int, column: int, excerpt: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.column = column
        self.excerpt = excerpt
        self.hint = hint

    def render(self) -> str:
        """The whole story for a terminal: place, sentence, the line, the hint."""
        parts = [f"{self.file}:{self.line}:{self.column}: {self}", self.excerpt]
        if self.hint:
            parts.append(f"  {self.hint}")
        return "\n".join(part for part in parts if part)


class PayloadInvalid(InvalidRequest):
    """A payload that does not fit: `path` is what is wrong in the message, like `payload.incident.urgency`; empty if it
    is the whole."""

    code = "payload_invalid"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class ExpressionFailed(InvalidRequest):
    code = "expression_failed"


class ExpressionTooCostly(ExpressionFailed):
    code = "expression_too_costly"


class NotFound(FairlaneError):
    code = "not_found"


class Conflict(FairlaneError):
    code = "conflict"


class LeaseLost(Conflict):
    code = "lease_lost"


class ConfigMismatch(Conflict):
    code = "config_hash_mismatch"


class NotAvailable(Conflict):
    code = "not_available"


class AckRefused(Conflict):
    code = "ack_refused"


class Unresolvable(AckRefused):
    code = "unresolvable"


class NotDelivered(AckRefused):
    code = "not_delivered"


class Committed(AckRefused):
    code = "committed"


class Redelivered(AckRefused):
    code = "redelivered"


class Unauthenticated(FairlaneError):
    code = "unauthenticated"


class Forbidden(FairlaneError):
    code = "forbidden"


class QuotaReached(Forbidden):
    code = "quota_reached"


class OptionsChanged(Conflict):
    code = "options_changed"

    def __init__(self, queue: str) -> None:
        super().__init__(f"the options of queue {queue!r} were changed meanwhile; read them and try again")


class AlreadyExists(Conflict):
    code = "already_exists"


class ConsentNeeded(Conflict):
    code = "consent_needed"


class TransactionRefused(Conflict):
    """A refused transaction: `index` is the step that was refused; every step was rolled back."""

    code = "transaction_refused"

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class AlreadyApplied(TransactionRefused):
    """The acks of the transaction were applied by an earlier try, and with them what that one pushed."""

    code = "already_applied"


class StateMoved(TransactionRefused):
    """A cycle without an ack that met a consumer of its stream, or the work of one."""

    code = "state_moved"


class OperationFailed(Conflict):
    code = "operation_failed"


class CommandFailed(FairlaneError):
    """A failed command: `retry_after` is how many seconds whoever was called asked for, if it did."""

    code = "command_failed"

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


class Overloaded(FairlaneError):
    code = "overloaded"
    retryable = True

    def __init__(self, message: str, *, retry_after: float = 5.0, depth: int | None = None) -> None:
        """`depth` is how many wait where there is no more room."""
        super().__init__(message)
        self.retry_after = retry_after
        self.depth = depth


class QueueFull(Overloaded):
    code = "QUEUE_FULL"
    depth: int

    def __init__(self, message: str, *, depth: int, capacity: int, retry_after: float = 5.0) -> None:
        super().__init__(message, retry_after=retry_after, depth=depth)
        self.capacity = capacity


class OverQuota(Overloaded):
    code = "over_quota"


class JournalFull(Overloaded):
    code = "journal_full"


class BrokerFailed(FairlaneError):
    code = "internal_error"
    retryable = True


class Unavailable(FairlaneError):
    code = "unavailable"
    retryable = True


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class StoreRefused(StoreUnavailable):
    code = "store_refused"
    retryable = False


class StoreFull(StoreUnavailable):
    code = "store_full"


class StoreUnsafe(Unavailable):
    code = "store_unsafe"
    retryable = False


class StoreCorrupt(Unavailable):
    code = "store_corrupt"
    retryable = False


class SealError(StoreCorrupt):
    code = "sealed"


class LaneWaiting(Unavailable):
    code = "lane_waiting"


class LaneLocked(Unavailable):
    code = "lane_locked"


class ShuttingDown(Unavailable):
    code = "shutting_down"


class TooManyPolls(Unavailable):
    code = "too_many_polls"


class OutcomeUnknown(Unavailable):
    code = "outcome_unknown"
