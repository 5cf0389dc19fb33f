"""`fairlane hook ...`: list webhooks, and send one as its sender would."""

from __future__ import annotations

import http.client
import sys
import uuid
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlsplit

import click
import msgspec

from fairlane.cli import REFUSED, TRY_AGAIN
from fairlane.cli.commands.spec import File, compiled
from fairlane.cli.toolkit.command import (
    AsJson,
    Client,
    Columns,
    CommandGroup,
    Output,
    Server,
    arg,
    call_broker,
    client_command,
    command,
    opt,
    print_output,
)
from fairlane.cli.toolkit.output import printable
from fairlane.config import own_variables
from fairlane.errors import FairlaneError, InvalidRequest, Unavailable
from fairlane.model.names import COMMANDS, DEFAULT_SERVER
from fairlane.runtime.clock import wall_clock
from fairlane.spec import ir
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.spec.sample_webhook import added_to, sample_body
from fairlane.spec.text.source import suggestion
from fairlane.webhooks import signatures
from fairlane.webhooks.samples import SAMPLES, sample_of, sender_of
from fairlane.webhooks.schemes import keys_of, scheme_of
from fairlane.wire.browse import MessageResult

app = CommandGroup("hook")

DeliveryId = Annotated[str | None, opt("Delivery id, which identifies redeliveries; random by default.")]

_HOOKS: Columns = {key: itemgetter(key) for key in ("name", "path", "queue", "verify", "app")}
_ANSWER_SECONDS = 30.0


@client_command(app, "list", columns=_HOOKS, empty="There are no webhooks; `fairlane spec apply` adds those of a spec.")
async def list_webhooks(client: Client) -> Any:
    """List the webhooks of the applied specs."""
    specs = [msgspec.convert(one.spec, ir.Spec) for one in await client.specs.all()]
    return [
        {"name": name, "path": f"/hook/{quote(name)}", "queue": hook.queue, "app": spec.app, "verify": _scheme(hook)}
        for spec in specs
        for name, hook in spec.webhooks.items()
    ]


def _scheme(hook: ir.WebhookSpec) -> str | None:
    return None if hook.verify is None else hook.verify.scheme


@command(app)
def sign(
    file: File,
    webhook: Annotated[str, arg("WEBHOOK", "Name of a webhook in the spec.")],
    body: Annotated[str, arg("BODY", "File with the body; - for standard input.", type=click.Path())] = "-",
    delivery_id: DeliveryId = None,
    json: AsJson = False,
) -> None:
    """Print the signature headers that the sender of a webhook would send, for `curl -H @FILE`.

    The secret is read from the environment variable that the spec names.
    """
    spec = compiled(file)
    if webhook not in spec.webhooks:
        raise InvalidRequest(f"there is no webhook `{webhook}` in {file}; {suggestion(webhook, spec.webhooks)}")
    verify = spec.webhooks[webhook].verify
    if verify is None:
        raise InvalidRequest(f"the webhook `{webhook}` is not signed; it has no `verify`")
    signed = _signature(verify, _body(body), delivery_id or str(uuid.uuid4()))
    lines = "".join(f"{name}: {value}\n" for name, value in signed.items())
    print_output(Output(signed, lambda: sys.stdout.write(lines)), json)


@command(app, "test")
def try_webhook(
    webhook: Annotated[str, arg("WEBHOOK", "Name of an applied webhook.")],
    preset: Annotated[
        str | None, opt("Sender whose sample to send; by default the one that the webhook verifies.")
    ] = None,
    body: Annotated[
        str | None,
        opt("File with the body to send instead of a sample; - for standard input.", metavar="FILE", type=click.Path()),
    ] = None,
    delivery_id: DeliveryId = None,
    wait: Annotated[float, opt("Seconds to wait for the result.", metavar="SECONDS")] = 5.0,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> None:
    """Send a signed sample to a webhook of the broker, and show the resulting message.

    The secret is read from the environment variable that the spec names.
    """
    if preset is not None and preset not in SAMPLES:
        raise InvalidRequest(f"there is no preset `{preset}`; {suggestion(preset, SAMPLES)}")

    async def send_sample(client: Client) -> Output:
        spec = await _declared(client, webhook)
        sent = _delivery(
            spec,
            webhook,
            server=server.split(",")[0].strip(),
            preset=preset,
            body=None if body is None else _body(body),
            delivery_id=delivery_id,
        )
        answer = _send(sent)
        mapped = spec.queues[spec.webhooks[webhook].queue or ""].map_to if spec.webhooks[webhook].queue else None
        message = await _webhook_message(client, spec, webhook, answer.json) if answer.status < 300 else None
        end = None
        if answer.status == 202 and message is not None and mapped and wait > 0:
            id = _transaction_id(webhook, answer.json)
            end = await client.results.get(message.queue, id, partition=message.partition, group=COMMANDS, wait=wait)
        shown = {"status": answer.status, "answer": answer.json, "message": message, "end": end}
        code = 0 if answer.status < 300 else TRY_AGAIN if answer.status in (429, 503) else REFUSED
        return Output(shown | {"added": sent.added}, lambda: _print(sent, answer, message, end), code)

    print_output(call_broker(server, send_sample), json)


def _body(file: str) -> bytes:
    """Return the exact bytes of the body, because the signature covers them."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read {file}: {error.strerror}") from None


def _print(sent: Delivery, answer: WebhookResponse, message: WebhookMessage | None, end: MessageResult | None) -> None:
    lines = [f"sent     {sent.body.decode(errors='replace')}"]
    lines.append(f"         to {sent.url}")
    if sent.added:
        lines.append(
            f"added    {', '.join(sent.added)}: the spec reads this, but the sender's sample does not have it."
        )
        lines.append("         Compare it with a real delivery; --body FILE sends one")
    lines.append(f"answer   {answer.status} {answer.body.decode(errors='replace')}")
    if message is not None:
        lines.append(f"message  {bytes(message.data).decode(errors='replace')}")
        lines.append(f"         in queue {message.queue}, partition {message.partition}")
        if message.command is not None:
            given = msgspec.json.encode(message.command["input"]).decode()
            lines.append(f"command  {message.command['name']} {given}")
    error = (end and end.error) or (message and message.error)
    if end is not None and end.status == "completed":
        lines.append(f"result   {bytes(end.raw).decode(errors='replace')}")
    elif error is not None:
        lines.append(f"error    {error}")
    elif message is not None and message.command is not None:
        lines.append("waits    for a worker that runs the command: `fairlane worker MODULE:APP`")
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


class Delivery(NamedTuple):
    """A signed webhook delivery."""

    url: str
    headers: dict[str, str]
    body: bytes
    added: tuple[str, ...] = ()
    """Fields that the spec reads and the sender's sample lacks."""


class WebhookResponse(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        try:
            answer = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return {}
        return answer if isinstance(answer, dict) else {}


class WebhookMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The message that a webhook delivery became."""

    queue: str
    partition: str
    status: str
    data: msgspec.Raw
    command: dict[str, Any] | None = None
    """The command that the `map_to` of the queue makes of it."""
    error: str | None = None


async def _declared(client: Client, webhook: str) -> ir.Spec:
    """Return the applied spec that declares this webhook."""
    specs = [msgspec.convert(one.spec, ir.Spec) for one in await client.specs.all()]
    for spec in specs:
        if webhook in spec.webhooks:
            return spec
    known = [name for spec in specs for name in spec.webhooks]
    hint = suggestion(webhook, known) if known else "apply a spec that declares it with `fairlane spec apply FILE`"
    raise InvalidRequest(f"the broker has no webhook `{webhook}`; {hint}")


def _delivery(
    spec: ir.Spec, webhook: str, *, server: str, preset: str | None, body: bytes | None, delivery_id: str | None
) -> Delivery:
    """Return a delivery of the sender's sample, or of `body`, signed as the spec requires."""
    hook = spec.webhooks[webhook]
    known = preset or sender_of(hook)
    sample = sample_of(known)
    filled = sample_body(spec, hook, sample.body)
    sent = msgspec.json.encode(filled) if body is None else body
    added = tuple(added_to(sample.body, filled)) if body is None and known in SAMPLES else ()
    id = delivery_id or str(uuid.uuid4())
    headers = {"Content-Type": "application/json", **sample.headers}
    if isinstance(hook.idempotency, ir.HeaderKey):
        headers[hook.idempotency.header] = id
    if hook.verify is not None:
        names = {name.lower() for name in headers}
        signature = _signature(hook.verify, sent, id).items()
        headers |= {name: value for name, value in signature if name not in names}
    return Delivery(f"{server.rstrip('/')}/hook/{quote(webhook)}", headers, sent, added)


def _signature(verify: ir.Verify, body: bytes, delivery_id: str) -> dict[str, str]:
    """Return the signature headers. The secret is read from the environment."""
    scheme = scheme_of(verify)
    key = keys_of(scheme, own_variables(verify.secret_env))[0]
    signed = signatures.sign(scheme, key, body, delivery_id=delivery_id, now=wall_clock() / 1e6)
    return {name.decode("ascii"): value.decode("latin-1") for name, value in signed.items()}


def _send(what: Delivery) -> WebhookResponse:
    """Send the delivery once, without retries."""
    parts = urlsplit(what.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("POST", parts.path, body=what.body, headers=what.headers)
        response = connection.getresponse()
        return WebhookResponse(response.status, response.read())
    except OSError as error:
        raise Unavailable(f"cannot reach {what.url}: {error.strerror or error}") from None
    finally:
        connection.close()


def _transaction_id(webhook: str, answer: Mapping[str, Any]) -> str:
    return f"{webhook}:{answer['idempotency_key']}"


async def _webhook_message(
    client: Client, spec: ir.Spec, webhook: str, answer: Mapping[str, Any]
) -> WebhookMessage | None:
    """Return the message of an accepted webhook, or None if it is not visible yet."""
    queue = spec.webhooks[webhook].queue
    if queue is None or not answer.get("message_id"):
        return None
    page = await client.messages.page(queue, transaction_id=_transaction_id(webhook, answer), limit=1)
    if not page.messages:
        return None
    found = await client.messages.get(page.messages[0].partition_id, page.messages[0].transaction_id)
    try:
        command = CompiledQueue(spec, queue).command(decoded(bytes(found.raw)))
    except FairlaneError:
        command = None  # the message has the error
    return WebhookMessage(
        queue=found.queue,
        partition=found.partition,
        status=found.status,
        data=found.raw,
        command=msgspec.to_builtins(command),
        error=found.error_message,
    )
