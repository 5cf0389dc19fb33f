"""`fairlane hook ...`: a webhook as its sender would send it, and what became of it."""

from __future__ import annotations

import http.client
import sys
import uuid
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from fairlane.cli import REFUSED, TRY_AGAIN
from fairlane.cli.output import printable
from fairlane.cli.spec import File, compiled
from fairlane.cli.verb import AsJson, Client, Columns, Noun, Server, Shown, arg, ask, opt, print_shown, verb
from fairlane.config import own_variables
from fairlane.errors import FairlaneError, InvalidRequest, Unavailable
from fairlane.hooks import signatures
from fairlane.hooks.samples import SAMPLES, sample_of, sender_of
from fairlane.hooks.schemes import keys_of, scheme_of
from fairlane.model.names import COMMANDS, DEFAULT_SERVER
from fairlane.runtime.clock import wall_clock
from fairlane.spec import ir
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.spec.sample import added_to, sample_body
from fairlane.spec.text.source import suggestion
from fairlane.wire.browse import MessageResult

app = Noun("hook")

DeliveryId = Annotated[str | None, opt("What tells a redelivery; a new one.")]

_HOOKS: Columns = {key: itemgetter(key) for key in ("name", "path", "queue", "verify", "app")}
_ANSWER_SECONDS = 30.0


@verb(app, "list", columns=_HOOKS, empty="No webhook is declared; `fairlane spec apply` declares one.")
async def list_hooks(client: Client) -> Any:
    """List the webhooks of the specs in force."""
    specs = [msgspec.convert(one.spec, ir.Spec) for one in await client.specs.list()]
    return [
        {"name": name, "path": f"/hook/{quote(name)}", "queue": hook.queue, "app": spec.app, "verify": _scheme(hook)}
        for spec in specs
        for name, hook in spec.webhooks.items()
    ]


def _scheme(hook: ir.WebhookSpec) -> str | None:
    return None if hook.verify is None else hook.verify.scheme


@app.command()
def sign(
    file: File,
    webhook: Annotated[str, arg("WEBHOOK", "One that it declares.")],
    body: Annotated[str, arg("BODY", "A file with the body; - for a stream.")] = "-",
    delivery_id: DeliveryId = None,
    json: AsJson = False,
) -> None:
    """Print the headers that the sender of a webhook would sign a body with, for `curl -H @FILE`.

    The secret is read from the environment variable that the spec names.
    """
    spec = compiled(file)
    if webhook not in spec.webhooks:
        raise InvalidRequest(f"there is no webhook `{webhook}` in {file}; {suggestion(webhook, spec.webhooks)}")
    verify = spec.webhooks[webhook].verify
    if verify is None:
        raise InvalidRequest(f"the webhook `{webhook}` is not signed: it has no `verify`")
    signed = _signature(verify, _body(body), delivery_id or str(uuid.uuid4()))
    lines = "".join(f"{name}: {value}\n" for name, value in signed.items())
    print_shown(Shown(signed, lambda: sys.stdout.write(lines)), json)


@app.command("test")
def try_webhook(
    webhook: Annotated[str, arg("WEBHOOK", "One that was applied.")],
    preset: Annotated[str | None, opt("Whose sample to send; that of the sender it is verified as.")] = None,
    body: Annotated[str | None, opt("Send this instead; - for a stream.", metavar="FILE")] = None,
    delivery_id: DeliveryId = None,
    wait: Annotated[float, opt("How long to wait for what it comes to.", metavar="SECONDS")] = 5.0,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> None:
    """Sign a sample as the sender of a webhook would, send it to the broker, and show what came of it.

    The secret is read from the environment variable that the spec names.
    """
    if preset is not None and preset not in SAMPLES:
        raise InvalidRequest(f"there is no preset `{preset}`; {suggestion(preset, SAMPLES)}")

    async def tried(client: Client) -> Shown:
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
        message = await _became(client, spec, webhook, answer.json) if answer.status < 300 else None
        end = None
        if answer.status == 202 and message is not None and mapped and wait > 0:
            id = _transaction_id(webhook, answer.json)
            end = await client.results.get(message.queue, id, partition=message.partition, group=COMMANDS, wait=wait)
        shown = {"status": answer.status, "answer": answer.json, "message": message, "end": end}
        code = 0 if answer.status < 300 else TRY_AGAIN if answer.status in (429, 503) else REFUSED
        return Shown(shown | {"added": sent.added}, lambda: _print(sent, answer, message, end), code)

    print_shown(ask(server, tried), json)


def _body(file: str) -> bytes:
    """The very bytes: a signature is of nothing else."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None


def _print(sent: Delivery, answer: Answer, message: Became | None, end: MessageResult | None) -> None:
    lines = [f"sent     {sent.body.decode(errors='replace')}"]
    lines.append(f"         to {sent.url}")
    if sent.added:
        lines.append(f"added    {', '.join(sent.added)}: the spec reads it, and the sample of the sender has it not.")
        lines.append("         Compare with what the sender really sends; --body FILE sends that")
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
        lines.append("waits    for whoever carries out the command: `fairlane worker MODULE:APP`")
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


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


async def _declared(client: Client, webhook: str) -> ir.Spec:
    """The spec in force that has this webhook."""
    specs = [msgspec.convert(one.spec, ir.Spec) for one in await client.specs.list()]
    for spec in specs:
        if webhook in spec.webhooks:
            return spec
    known = [name for spec in specs for name in spec.webhooks]
    hint = suggestion(webhook, known) if known else "apply a spec that has it: `fairlane spec apply FILE`"
    raise InvalidRequest(f"the broker has no webhook `{webhook}`; {hint}")


def _delivery(
    spec: ir.Spec, webhook: str, *, server: str, preset: str | None, body: bytes | None, delivery_id: str | None
) -> Delivery:
    """A webhook with a sample of what its sender sends, or with `body`, signed as the spec says."""
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
    """The headers by which its sender signs a webhook. The secret is read from the environment."""
    scheme = scheme_of(verify)
    key = keys_of(scheme, own_variables(verify.secret_env))[0]
    signed = signatures.sign(scheme, key, body, delivery_id=delivery_id, now=wall_clock() / 1e6)
    return {name.decode("ascii"): value.decode("latin-1") for name, value in signed.items()}


def _send(what: Delivery) -> Answer:
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


def _transaction_id(webhook: str, answer: Mapping[str, Any]) -> str:
    return f"{webhook}:{answer['idempotency_key']}"


async def _became(client: Client, spec: ir.Spec, webhook: str, answer: Mapping[str, Any]) -> Became | None:
    """The message of a webhook that was taken; None while it is nowhere to be seen."""
    queue = spec.webhooks[webhook].queue
    if queue is None or not answer.get("message_id"):
        return None
    page = await client.messages.list(queue, transaction_id=_transaction_id(webhook, answer), limit=1)
    if not page.messages:
        return None
    found = await client.messages.get(page.messages[0].partition_id, page.messages[0].transaction_id)
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
