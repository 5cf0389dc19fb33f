"""The shapes on the wire. camelCase and old spellings live here and nowhere else."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.http.unknown import hint
from fairlane.model.message import PushItem
from fairlane.model.queue import QueueOptions, queue_options

NULL = msgspec.Raw(b"null")
# An optional Raw is an empty one, not `Raw | None`: that takes nothing but null.


# Many of these come with each request, and none can be part of a cycle: the collector need not look at them.
class WireItem(PushItem, rename="camel", kw_only=True, gc=False, forbid_unknown_fields=True):
    payload: msgspec.Raw
    partition: str | None = "Default"  # type: ignore[assignment]
    # Named again, for a base's fields keep the base's spelling.
    transaction_id: str | None = None
    trace_id: str | None = None
    deliver_at: str | None = None  # type: ignore[assignment]
    delay_ms: int | None = None
    priority: int | None = None
    producer_sub: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    """Published clients send it, and nobody believes it: who produced a message is not for its body to say."""


class PushBody(msgspec.Struct, forbid_unknown_fields=True):
    items: list[WireItem]


class AckBody(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    transaction_id: str
    partition_id: str
    status: str | None = "completed"
    lease_id: str | None = None
    consumer_group: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    cumulative: bool | None = None
    """Finish what the lease was given before this message too: unless false for a single ack, if true in a batch."""


class AckBatchBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    acknowledgments: list[AckBody]
    consumer_group: str | None = None


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    seconds: int = 60


class Operation(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One step of a transaction: a push (its items, or one item flat) or an ack."""

    type: str
    items: list[WireItem] | None = None
    queue: str | None = None
    partition: str | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    transaction_id: str | None = None
    trace_id: str | None = None
    deliver_at: str | None = None
    """Refused, and so is delayMs of a push: a transaction cannot schedule."""
    priority: int | None = None
    partition_id: str | None = None
    status: str | None = "completed"
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class TransactionBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    operations: list[Operation] = msgspec.field(default_factory=list)
    required_leases: list[str] | None = None
    kv: list[msgspec.Raw] | None = None
    """Refused, as timers are: there is no key-value store here, and what is scheduled is no part of a transaction."""
    timers: list[msgspec.Raw] | None = None


class WireOptions(msgspec.Struct, rename="camel", omit_defaults=True):
    """A queue's options by their wire names. Each is also known by the name that it has everywhere else, like
    `leaseSeconds` or `lease_seconds`."""

    lease_time: int = 300
    retry_limit: int = 3
    retry_delay: int = 0
    max_retry_delay: int = 60_000
    retry_jitter: bool = False
    max_size: int = 0
    ttl: int = 0
    dead_letter_queue: str | bool = False
    dlq_after_max_retries: bool = False
    priority: int = 0
    delayed_processing: int = 0
    window_buffer: int = 0
    retention_seconds: int = 0
    completed_retention_seconds: int = 0
    retention_enabled: bool = False
    dead_letter_retention_seconds: int = 0
    encryption_enabled: bool = False
    max_wait_time_seconds: int = 0
    on_expiry: str = "dead_letter"
    on_exhausted: str = "dead_letter"
    ordering: str = "per_key"
    dedup_seconds: int = 86_400


_OPTION_NAMES = {
    "lease_time": "lease_seconds",
    "retry_delay": "retry_delay_ms",
    "max_retry_delay": "retry_delay_max_ms",
    "ttl": "ttl_seconds",
    "delayed_processing": "delay_seconds",
    "window_buffer": "window_seconds",
    "max_wait_time_seconds": "max_wait_seconds",
}
FOREIGN_OPTIONS: Final = frozenset({"maxQueueSize", "description"})
"""What published clients send and no queue here has."""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


_WIRE_NAMES = {
    wire: _OPTION_NAMES.get(name, name)
    for name, wire in zip(WireOptions.__struct_fields__, WireOptions.__struct_encode_fields__, strict=True)
}
_OPTIONS = _WIRE_NAMES | {spelt: name for name in _WIRE_NAMES.values() for spelt in (name, _camel(name))}
"""Every name that an option may be called by."""


def options_in(given: dict[str, Any]) -> QueueOptions:
    """All options of a queue as they were sent, checked; what is not there has its default. What is wrong is said by
    the name that it was sent by."""
    named = _named(given)
    try:
        return queue_options(**{name: value for name, (_, value) in named.items()})
    except InvalidRequest as error:
        first, blank, rest = str(error).partition(" ")
        raise InvalidRequest(f"{named[first][0] if first in named else first}{blank}{rest}") from None


def options_given(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were sent, by our names; checked as far as each can be alone."""
    options = options_in(given)
    return {name: getattr(options, name) for name in _named(given)}


def _named(given: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """By our names, each with the name that it was sent by."""
    named: dict[str, tuple[str, Any]] = {}
    for spelt, value in given.items():
        if value is None or spelt in FOREIGN_OPTIONS:  # null is as good as absent
            continue
        name = _OPTIONS.get(spelt)
        if name is None:
            raise InvalidRequest(f"there is no option {spelt!r:.80}; {hint(spelt, _OPTIONS)}")
        if name in named:
            raise InvalidRequest(f"{named[name][0]} and {spelt} are one option, and it is given twice")
        named[name] = (spelt, 60 if name == "lease_seconds" and value == 0 else value)
    return named


def options_out(options: QueueOptions) -> dict[str, Any]:
    """Every option with its effective value, by wire name."""
    return {wire: getattr(options, name) for wire, name in _WIRE_NAMES.items()}


class ConfigureBody(msgspec.Struct, forbid_unknown_fields=True):
    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """`WireOptions`, by any of their names."""


class OptionsBody(msgspec.Struct, forbid_unknown_fields=True):
    options: dict[str, Any]
    """Those that change, by any of their names."""
