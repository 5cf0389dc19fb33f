"""The error tree: every error that Fairlane raises on purpose.

    FairlaneError
    |- InvalidRequest       the caller's fault, never retry
    |   |- SpecError        a spec is wrong at a line and column
    |   |- PayloadInvalid   a message does not fit the type of its queue
    |   '- ExpressionFailed a message lacks a value that an expression of a spec needs
    |       '- ExpressionTooCostly   the expression exceeds its limits on work or output for this message
    |- NotFound             the queue, group, partition or message does not exist
    |- Conflict             the state does not allow it
    |   |- LeaseLost        the lease ended, or never belonged to this group
    |   |- MessageCancelled the message was cancelled
    |   |- AlreadyExists
    |   |- OptionsChanged       the options of the queue were changed meanwhile
    |   |- ConfigMismatch       a stream of this name was registered with another configuration
    |   |- NotAvailable         this broker was started without the needed setting
    |   |- TransactionSpansCells   its queues are in several cells; nothing was done
    |   |- ConsentNeeded        a spec would lose, refuse or expose messages, and needs consent
    |   |- TransactionRefused   one of its operations was refused; nothing was applied
    |   |   |- AlreadyApplied   an earlier attempt applied its acks and pushes
    |   |   '- StateMoved       a cycle without an ack met a consumer of its stream
    |   |- AckRefused           the ack of one message
    |   |   |- Unresolvable     no such message in the lease or the partition
    |   |   |- NotDelivered     the message has not been delivered yet
    |   |   |- Committed        a nack came too late: the message is finished
    |   |   '- Redelivered      an earlier message of the same call failed, so this one is delivered again
    |   '- OperationFailed      an accepted operation failed later; the operation has the reason
    |- Unauthenticated      a signature or credential is missing or invalid
    |- Forbidden            the caller lacks the scope
    |   '- QuotaReached     the tenant has reached a quota: waiting does not help
    |- CommandFailed        the executor of a command refused it or did not answer; `retryable` tells which
    |- Overloaded           try again after `retry_after` seconds
    |   |- QueueFull        the queue is at its capacity
    |   |- OverQuota        the tenant exceeds a rate or a concurrency limit
    |   '- JournalFull      the store is down and the journal is full
    |- BrokerFailed         the broker has a defect; its log has the details
    '- Unavailable          the store or the broker cannot answer now; retry
        |- StoreUnavailable
        |   |- StoreRefused the database, the role or the URL is wrong: waiting does not help
        |   '- StoreFull    the disk of the store is full
        |- StoreUnsafe      the store would lose data: refused to start
        |- StoreCorrupt     stored bytes do not match their checksum
        |   '- SealError    a message cannot be sealed or opened: no key, another key, or changed bytes
        |- QueueElsewhere   another cell got the queue just now
        |- LaneWaiting      operations are queued for a partition that a transaction or a sealed replay would append to
        |- LaneLocked       the partition is locked for too long; nothing was applied
        |- ShuttingDown
        |- TooManyPolls     the limit of waiting long polls is reached
        '- OutcomeUnknown   the commit may or may not have happened; retry with the same transactionId

`code` is stable and part of the wire format. `retryable` is True if the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class FairlaneError(Exception):
    code = "error"
    retryable = False


class InvalidRequest(FairlaneError):
    code = "invalid_request"


class SpecError(InvalidRequest):
    """A mistake in a spec.

    `line` and `column` count from 1. `excerpt` shows the line with a mark under the place, and `hint` suggests a fix.
    """

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
        """Format the error for a terminal: place, message, excerpt and hint."""
        parts = [f"{self.file}:{self.line}:{self.column}: {self}", self.excerpt]
        if self.hint:
            parts.append(f"  {self.hint}")
        return "\n".join(part for part in parts if part)


class PayloadInvalid(InvalidRequest):
    """A payload that does not match the type of its queue.

    `path` is the wrong field, like `payload.incident.urgency`, and empty if the whole payload is wrong.
    """

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


class MessageCancelled(Conflict):
    code = "cancelled"


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
    """A refused transaction. `index` is the step that was refused; all steps were rolled back."""

    code = "transaction_refused"

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class AlreadyApplied(TransactionRefused):
    """An earlier attempt of the transaction was applied, acks and pushes."""

    code = "already_applied"


class TransactionSpansCells(Conflict):
    """A transaction over queues of several cells. Nothing was done."""

    code = "transaction_spans_cells"


class StateMoved(TransactionRefused):
    """A stream cycle without an ack that conflicts with a consumer of its stream."""

    code = "state_moved"


class OperationFailed(Conflict):
    code = "operation_failed"


class CommandFailed(FairlaneError):
    """A failed command. `retry_after` is the delay in seconds that the called service asked for, or None."""

    code = "command_failed"

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


class Overloaded(FairlaneError):
    code = "overloaded"
    retryable = True

    def __init__(self, message: str, *, retry_after: float = 5.0, depth: int | None = None) -> None:
        """Create the error. `depth` is the number of messages in the full queue. None if it is not about a queue."""
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


class QueueElsewhere(Unavailable):
    """A queue was placed in another cell just now. The broker looks it up again."""

    code = "queue_elsewhere"
    retryable = True


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


def as_outcome_unknown(error: FairlaneError) -> OutcomeUnknown:
    """Return the error of a call that an earlier attempt may have applied, although this attempt failed."""
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(
        f"this may or may not have been done, because an answer of the store was lost; then it answered: {error}; "
        "repeat the call with the same ids"
    )


@contextmanager
def after_commit() -> Iterator[None]:
    """Raise Unavailable errors of this block as OutcomeUnknown, because the call was applied before it."""
    try:
        yield
    except Unavailable as error:
        raise as_outcome_unknown(error) from error
