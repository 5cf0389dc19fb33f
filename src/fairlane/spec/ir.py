"""The intermediate representation of a spec: one JSON document. `schema()` describes it.

Expressions are texts, which are checked and compiled where they run. The document has no secrets, only the names of
environment variables that hold them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.polling import Polling
from fairlane.model.queue import QueueOptions
from fairlane.model.unique import Unique
from fairlane.wire.schedules import Missed


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the document. Unknown members are refused, and defaults are left out."""


class Scalar(Node, frozen=True, kw_only=True, tag_field="type", tag="scalar"):
    of: Literal["json", "string", "int", "float", "bool", "time", "uuid", "bytes"]
    optional: bool = False


class ListType(Node, frozen=True, kw_only=True, tag_field="type", tag="list"):
    items: Type
    optional: bool = False


class MapType(Node, frozen=True, kw_only=True, tag_field="type", tag="map"):
    values: Type
    optional: bool = False


class EnumType(Node, frozen=True, kw_only=True, tag_field="type", tag="enum"):
    choices: tuple[str, ...]
    optional: bool = False


class RecordType(Node, frozen=True, kw_only=True, tag_field="type", tag="record"):
    """A record. Members that it does not name are allowed, because senders add members at any time."""

    fields: dict[str, Type]
    optional: bool = False


Type: TypeAlias = Scalar | ListType | MapType | EnumType | RecordType


class Mapping(Node, frozen=True, kw_only=True):
    """The command that a message is mapped to, and an expression for each field of its input."""

    command: str
    fields: dict[str, str]


class QueueSpec(Node, frozen=True, kw_only=True):
    options: QueueOptions
    message_type: RecordType | None = None
    key: str | None = None
    """Expression for the partition of a message."""
    map_to: Mapping | None = None


class HttpRun(Node, frozen=True, kw_only=True, tag_field="by", tag="http"):
    method: str
    url: str


class QueueRun(Node, frozen=True, kw_only=True, tag_field="by", tag="queue"):
    queue: str


class CommandSpec(Node, frozen=True, kw_only=True):
    input: RecordType | None = None
    run: HttpRun | QueueRun | None = None
    """The target that runs the command. Without it, a worker that registered the command's name runs it."""
    secret_env: str | None = None
    """Environment variable with the secret that signs the calls of an HTTP command."""


class Verify(Node, frozen=True, kw_only=True):
    scheme: Literal["github", "stripe", "slack", "pagerduty", "shopify", "standard_webhooks", "hmac"]
    secret_env: tuple[str, ...]
    """Environment variables with the secrets.

    Several are allowed while a secret is rotated; a request may be signed with any of them.
    """
    header: str | None = None
    prefix: str = ""
    algorithm: Literal["sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"


class HeaderKey(Node, frozen=True, kw_only=True, tag_field="by", tag="header"):
    header: str


class ExpressionKey(Node, frozen=True, kw_only=True, tag_field="by", tag="expression"):
    expression: str


class BodyKey(Node, frozen=True, kw_only=True, tag_field="by", tag="body"):
    """A deduplication key: the SHA-256 of the body."""


class WebhookSpec(Node, frozen=True, kw_only=True):
    queue: str | None = None
    command: Mapping | None = None
    """Command to run for each message if the webhook has no queue."""
    on_type: str | None = None
    """Accept only requests whose body has this `type`."""
    verify: Verify | None = None
    idempotency: HeaderKey | ExpressionKey | BodyKey | None = None
    format: Literal["plain", "cloudevents"] = "plain"
    """`plain` pushes the body unchanged. `cloudevents` pushes the CloudEvent in the body and headers."""
    headers: tuple[str, ...] = ()
    """Names of the headers to copy to the message."""
    max_body_bytes: int = 1024 * 1024
    max_per_second: int = 0
    """Requests per second that each broker accepts. 0 means unlimited."""
    redelivery: Literal["replay", "ignore"] = "replay"
    """`replay` lets a signed redelivery replay the dead letter of its message."""


class ScheduleSpec(Node, frozen=True, kw_only=True):
    """A schedule: pushes a message at every tick of an interval or of cron."""

    queue: str
    partition: str = DEFAULT_PARTITION
    data: Any = None
    """The payload to push. If null, the name of the schedule and the time of the tick."""
    type: str | None = None
    every_seconds: int | None = None
    cron: str | None = None
    timezone: str = "UTC"
    missed: Missed = "once"
    unique: Unique | None = None
    unique_key: str | None = None


class PollerSpec(Polling, Node, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An HTTP API whose records become messages. `fairlane poll --help` documents each setting."""

    token_env: str | None = None
    """Environment variable with the bearer token."""
    every_seconds: int = 300
    sweep_seconds: int = 3600
    """Interval between sweeps. 0 means never."""


class Spec(Node, frozen=True, kw_only=True, omit_defaults=False):
    """An app and everything that it declares."""

    app: str
    version: Literal[1] = 1
    queues: dict[str, QueueSpec] = {}
    commands: dict[str, CommandSpec] = {}
    webhooks: dict[str, WebhookSpec] = {}
    schedules: dict[str, ScheduleSpec] = {}
    pollers: dict[str, PollerSpec] = {}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    described = msgspec.json.schema(Spec)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fairlane spec"} | described
