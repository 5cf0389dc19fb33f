"""`fairlane hook test`: a webhook as its sender would send it, and what became of it."""

from __future__ import annotations

import http.client
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from fairlane.config import own_variables
from fairlane.errors import FairlaneError, InvalidRequest, Unavailable
from fairlane.hooks.samples import SAMPLES, sample_of
from fairlane.hooks.schemes import scheme_of
from fairlane.hooks.secrets import keys_of
from fairlane.hooks.signatures import sign
from fairlane.runtime.clock import wall_clock
from fairlane.spec import ir
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.spec.sample import added_to, sample_body
from fairlane.spec.text.source import suggestion

if TYPE_CHECKING:
    from fairlane.blocking import Client

_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 30.0


class Delivery(NamedTuple):
    """A delivery to try: the same each time it is sent."""

    url: str
    headers: dict[str, str]
    body: bytes
    added: tuple[str, ...] = ()
    """What the spec reads and the sample of its sender has not."""


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return {}
        return answer if isinstance(answer, dict) else {}


class Became(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The message that came of a webhook."""

    queue: str
    partition: str
    status: str
    data: msgspec.Raw
    command: dict[str, Any] | None = None
    """What it becomes by the `map_to` of its queue."""
    error: str | None = None


def declared(client: Client, webhook: str) -> ir.Spec:
    """The spec in force that has this webhook."""
    specs = [msgspec.convert(one.spec, ir.Spec) for one in client.specs()]
    for spec in specs:
        if webhook in spec.webhooks:
            return spec
    known = [name for spec in specs for name in spec.webhooks]
    hint = suggestion(webhook, known) if known else "apply a spec that has it: `fairlane spec apply FILE`"
    raise InvalidRequest(f"the broker has no webhook `{webhook}`; {hint}")


def delivery(
    spec: ir.Spec, webhook: str, *, server: str, preset: str | None, body: bytes | None, delivery_id: str | None
) -> Delivery:
    """A webhook with a sample of what its sender sends, or with `body`, signed as the spec says."""
    hook = spec.webhooks[webhook]
    scheme = scheme_of(hook.verify) if hook.verify else None
    known = preset or (hook.verify.scheme if hook.verify else "")
    sample = sample_of(known)
    filled = sample_body(spec, hook, sample.body)
    sent = msgspec.json.encode(filled) if body is None else body
    added = tuple(added_to(sample.body, filled)) if body is None and known in SAMPLES else ()
    id = delivery_id or str(uuid.uuid4())
    headers = {"Content-Type": "application/json", **sample.headers}
    if isinstance(hook.idempotency, ir.HeaderKey):
        headers[hook.idempotency.header] = id
    if scheme is not None and hook.verify is not None:
        key = keys_of(scheme, own_variables(hook.verify.secret_env))[0]
        signed = sign(scheme, key, sent, delivery_id=id, now=wall_clock() / 1e6)
        names = {name.lower() for name in headers}
        headers |= {
            name.decode(): value.decode("latin-1") for name, value in signed.items() if name.decode() not in names
        }
    return Delivery(f"{server.rstrip('/')}/hook/{quote(webhook)}", headers, sent, added)


def send(what: Delivery) -> Answer:
    """One request, never repeated by itself."""
    parts = urlsplit(what.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("POST", parts.path, body=what.body, headers=what.headers)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except OSError as error:
        raise Unavailable(f"cannot reach {what.url}: {error.strerror or error}") from None
    finally:
        connection.close()


def processed(what: Delivery, *, seconds: float) -> Answer | None:
    """The answer to a redelivery once the first was processed; None if that takes longer."""
    until = time.monotonic() + seconds
    while True:
        answer = send(what)
        if answer.status != 202 or time.monotonic() >= until:
            return answer if answer.status == 200 else None
        time.sleep(_LOOK_SECONDS)


def became(client: Client, spec: ir.Spec, webhook: str, answer: Mapping[str, Any]) -> Became | None:
    """The message of a webhook that was taken; None while it is nowhere to be seen."""
    queue = spec.webhooks[webhook].queue
    if queue is None or not answer.get("message_id"):
        return None
    page = client.messages(queue, transaction_id=f"{webhook}:{answer['idempotency_key']}", limit=1)
    if not page.messages:
        return None
    found = client.message(page.messages[0].partition_id, page.messages[0].transaction_id)
    try:
        command = CompiledQueue(spec, queue).command(decoded(bytes(found.raw)))
    except FairlaneError:
        command = None  # the error of the message says it
    return Became(
        queue=found.queue,
        partition=found.partition,
        status=found.status,
        data=found.raw,
        command=msgspec.to_builtins(command),
        error=found.error_message,
    )
