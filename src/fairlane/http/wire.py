"""The shapes on the wire. camelCase and old spellings live here and nowhere else."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.http.nulls import without_nulls
from fairlane.model.message import PushItem
from fairlane.model.queue import QueueOptions

NULL = msgspec.Raw(b"null")
# An optional Raw is an empty one, not `Raw | None`: that takes nothing but null.


# Many of these come with each request, and none can be part of a cycle: the collector need not look at them.
class WireItem(PushItem, rename="camel", kw_only=True, gc=False):
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: NULL)
    partition: str | None = "Default"  # type: ignore[assignment]
    # Named again, for a base's fields keep the base's spelling.
    transaction_id: str | None = None
    trace_id: str | None = None
    deliver_at: str | None = None  # type: ignore[assignment]
    delay_ms: int | None = None
    priority: int | None = None


class PushBody(msgspec.Struct):
    items: list[WireItem]


class AckBody(msgspec.Struct, rename="camel", gc=False):
    transaction_id: str
    partition_id: str
    status: str | None = "completed"
    lease_id: str | None = None
    consumer_group: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class AckBatchBody(msgspec.Struct, rename="camel"):
    acknowledgments: list[AckBody]
    consumer_group: str | None = None


class ExtendBody(msgspec.Struct):
    seconds: int = 60


class Operation(msgspec.Struct, rename="camel"):
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


class TransactionBody(msgspec.Struct, rename="camel"):
    operations: list[Operation] = msgspec.field(default_factory=list)
    required_leases: list[str] | None = None
    kv: list[msgspec.Raw] | None = None
    """Refused, as timers are: there is no key-value store here, and what is scheduled is no part of a transaction."""
    timers: list[msgspec.Raw] | None = None


class WireOptions(msgspec.Struct, rename="camel", omit_defaults=True):
    """A queue's options by their wire names; unknown ones are ignored, as clients of other versions send them."""

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


def options_in(options: WireOptions) -> dict[str, Any]:
    fields = msgspec.structs.asdict(options)
    if fields["lease_time"] == 0:
        fields["lease_time"] = 60
    return {_OPTION_NAMES.get(name, name): value for name, value in fields.items()}


def options_out(options: QueueOptions) -> dict[str, Any]:
    """Every option with its effective value, by wire name."""
    return {
        wire: getattr(options, _OPTION_NAMES.get(name, name))
        for name, wire in zip(WireOptions.__struct_fields__, WireOptions.__struct_encode_fields__, strict=True)
    }


class ConfigureBody(msgspec.Struct):
    queue: str
    namespace: str | None = None
    task: str | None = None
    options: WireOptions = msgspec.field(default_factory=WireOptions)


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(body: bytes, type: Any, *, default: Any = msgspec.UNSET) -> Any:
    """The body as `type`. An empty body is `default` where there is one. InvalidRequest says what does not fit."""
    if not body:
        if default is msgspec.UNSET:
            raise InvalidRequest("the request needs a JSON body")
        return default
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.json.Decoder(type)
    try:
        if not body.isascii():
            body.decode()
        return _decoded(body, type, decoder)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not valid UTF-8 at byte {error.start}") from None
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body does not fit: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def _decoded(body: bytes, type: Any, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        try:
            thinned = without_nulls(body, type)
        except msgspec.DecodeError:
            raise error from None
        return decoder.decode(thinned)


_second: tuple[int, str] = (0, "1970-01-01T00:00:00")


def timestamp(micros: int) -> str:
    """`YYYY-MM-DDTHH:MM:SS.ffffffZ`."""
    global _second  # consecutive messages share their second
    whole, fraction = divmod(micros, 1_000_000)
    if whole != _second[0]:
        _second = (whole, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)))
    return f"{_second[1]}.{fraction:06d}Z"


def timestamp_or_none(micros: int | None) -> str | None:
    return None if micros is None else timestamp(micros)
