"""The intermediate representation: what a spec means, as one JSON document. `schema()` describes it.

Expressions travel as text and are checked and compiled by whoever runs them; no secret is in it, only the names of
the environment variables that hold one.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.polling import Polling
from fairlane.model.queue import QueueOptions
from fairlane.wire.schedules import Missed


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the document: unknown members are refused, defaults are left out."""


class Scalar(Part, frozen=True, kw_only=True, tag_field="type", tag="scalar"):
    of: Literal["json", "string", "int", "float", "bool", "time", "uuid", "bytes"]
    optional: bool = False


class ListType(Part, frozen=True, kw_only=True, tag_field="type", tag="list"):
    items: Type
    optional: bool = False


class MapType(Part, frozen=True, kw_only=True, tag_field="type", tag="map"):
    values: Type
    optional: bool = False


class EnumType(Part, frozen=True, kw_only=True, tag_field="type", tag="enum"):
    choices: tuple[str, ...]
    optional: bool = False


class RecordType(Part, frozen=True, kw_only=True, tag_field="type", tag="record"):
    """Members that it does not name are let through: senders add some without asking."""

    fields: dict[str, Type]
    optional: bool = False


Type: TypeAlias = Scalar | ListType | MapType | EnumType | RecordType


class Mapping(Part, frozen=True, kw_only=True):
    """The command that a message becomes, and an expression for each part of its input."""

    command: str
    fields: dict[str, str]


class QueueSpec(Part, frozen=True, kw_only=True):
    options: QueueOptions
    message_type: RecordType | None = None
    key: str | None = None
    """An expression that names the partition of a message."""
    map_to: Mapping | None = None


class HttpRun(Part, frozen=True, kw_only=True, tag_field="by", tag="http"):
    method: str
    url: str


class QueueRun(Part, frozen=True, kw_only=True, tag_field="by", tag="queue"):
    queue: str


class CommandSpec(Part, frozen=True, kw_only=True):
    input: RecordType | None = None
    run: HttpRun | QueueRun | None = None
    """Without one, a worker that registered the command's name runs it."""
    secret_env: str | None = None
    """What the calls of an HTTP command are signed with."""


class Verify(Part, frozen=True, kw_only=True):
    scheme: Literal["github", "stripe", "slack", "pagerduty", "shopify", "standard_webhooks", "hmac"]
    secret_env: tuple[str, ...]
    """Several while a secret is replaced: a signature by any of them is good."""
    header: str | None = None
    prefix: str = ""
    algorithm: Literal["sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"


class HeaderKey(Part, frozen=True, kw_only=True, tag_field="by", tag="header"):
    header: str


class ExpressionKey(Part, frozen=True, kw_only=True, tag_field="by", tag="expression"):
    expression: str


class BodyKey(Part, frozen=True, kw_only=True, tag_field="by", tag="body"):
    """The SHA-256 of the body."""


class WebhookSpec(Part, frozen=True, kw_only=True):
    queue: str | None = None
    command: Mapping | None = None
    """What runs at once where there is no queue."""
    on_type: str | None = None
    """Only what has this `type` in its body is for this hook."""
    verify: Verify | None = None
    idempotency: HeaderKey | ExpressionKey | BodyKey | None = None
    format: Literal["plain", "cloudevents"] = "plain"
    """`plain` pushes the body unchanged. `cloudevents` pushes the CloudEvent in the body and headers."""
    headers: tuple[str, ...] = ()
    """Which headers the message gets."""
    max_body_bytes: int = 1024 * 1024
    max_per_second: int = 0
    """How many requests each broker takes; 0: as many as come."""
    redelivery: Literal["replay", "ignore"] = "replay"
    """`replay` lets a signed redelivery replay the dead letter of its message."""


class ScheduleSpec(Part, frozen=True, kw_only=True):
    """A schedule: what is pushed at every tick, by an interval or by cron."""

    queue: str
    partition: str = DEFAULT_PARTITION
    data: Any = None
    """The payload; null: the name of the schedule and the time of the tick."""
    type: str | None = None
    every_seconds: int | None = None
    cron: str | None = None
    timezone: str = "UTC"
    missed: Missed = "once"


class PollerSpec(Polling, Part, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An HTTP API whose records become messages. `fairlane poll` says what each setting means."""

    token_env: str | None = None
    """What holds the bearer token."""
    every_seconds: int = 300
    sweep_seconds: int = 3600
    """0: never."""


class Spec(Part, frozen=True, kw_only=True, omit_defaults=False):
    """One app, and everything that it declares."""

    app: str
    version: Literal[1] = 1
    queues: dict[str, QueueSpec] = {}
    commands: dict[str, CommandSpec] = {}
    webhooks: dict[str, WebhookSpec] = {}
    schedules: dict[str, ScheduleSpec] = {}
    pollers: dict[str, PollerSpec] = {}


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    described = msgspec.json.schema(Spec)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fairlane spec"} | described
