"""`fairlane hook ...`"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.exits import REFUSED, TRY_AGAIN
from fairlane.cli.output import AsJson, print_json, printable
from fairlane.cli.spec import File, compiled
from fairlane.config import own_variables
from fairlane.errors import InvalidRequest
from fairlane.runtime.clock import wall_clock

if TYPE_CHECKING:
    from fairlane.cli.hook_test import Answer, Became, Delivery

app = typer.Typer(help="Webhooks that a spec declares.", no_args_is_help=True)


@app.command()
def sign(
    file: File,
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="One that it declares.", show_default=False)],
    body: Annotated[str, typer.Argument(metavar="BODY", help="A file with the body; - for a stream.")] = "-",
    delivery_id: Annotated[str | None, typer.Option(help="What tells a redelivery; a new one.")] = None,
) -> None:
    """Print the headers that the sender of a webhook would sign a body with, for `curl -H @FILE`.

    The secret is read from the environment variable that the spec names.
    """
    from fairlane.hooks.schemes import scheme_of
    from fairlane.hooks.secrets import keys_of
    from fairlane.hooks.signatures import sign as signed
    from fairlane.spec.text.source import suggestion

    spec = compiled(file)
    if webhook not in spec.webhooks:
        raise InvalidRequest(f"there is no webhook `{webhook}` in {file}; {suggestion(webhook, spec.webhooks)}")
    verify = spec.webhooks[webhook].verify
    if verify is None:
        raise InvalidRequest(f"the webhook `{webhook}` is not signed: it has no `verify`")
    scheme = scheme_of(verify)
    key = keys_of(scheme, own_variables(verify.secret_env))[0]
    headers = signed(scheme, key, _body(body), delivery_id=delivery_id or str(uuid.uuid4()), now=wall_clock() / 1e6)
    for name, value in headers.items():
        sys.stdout.write(f"{name.decode('ascii')}: {value.decode('latin-1')}\n")


@app.command("test")
def try_webhook(
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="One that was applied.", show_default=False)],
    preset: Annotated[
        str | None,
        typer.Option(help="Whose sample to send; that of the sender it is verified as.", show_default=False),
    ] = None,
    body: Annotated[
        str | None, typer.Option(metavar="FILE", help="Send this instead; - for a stream.", show_default=False)
    ] = None,
    delivery_id: Annotated[str | None, typer.Option(help="What tells a redelivery; a new one.")] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for what it comes to.")] = 5.0,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Sign a sample as the sender of a webhook would, send it to the broker, and show what came of it.

    The secret is read from the environment variable that the spec names. To see what a message came to, the same
    webhook is delivered again: it is known by its key, and nothing is stored twice.
    """
    from fairlane.cli import hook_test
    from fairlane.hooks.samples import SAMPLES
    from fairlane.spec.text.source import suggestion

    if preset is not None and preset not in SAMPLES:
        raise InvalidRequest(f"there is no preset `{preset}`; {suggestion(preset, SAMPLES)}")
    with connected(server) as client:
        spec = hook_test.declared(client, webhook)
        sent = hook_test.delivery(
            spec,
            webhook,
            server=server.split(",")[0].strip(),
            preset=preset,
            body=None if body is None else _body(body),
            delivery_id=delivery_id,
        )
        answer = hook_test.send(sent)
        mapped = spec.queues[spec.webhooks[webhook].queue or ""].map_to if spec.webhooks[webhook].queue else None
        end = hook_test.processed(sent, seconds=wait) if answer.status == 202 and mapped and wait > 0 else None
        message = hook_test.became(client, spec, webhook, answer.json) if answer.status < 300 else None
    _show(sent, answer, message, end, json=json)
    if answer.status >= 300:
        raise typer.Exit(TRY_AGAIN if answer.status in (429, 503) else REFUSED)


def _body(file: str) -> bytes:
    """The very bytes: a signature is of nothing else."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None


def _show(sent: Delivery, answer: Answer, message: Became | None, end: Answer | None, *, json: bool) -> None:
    if json:
        shown = {"status": answer.status, "answer": answer.json, "message": message, "end": end and end.json}
        print_json(shown | {"added": sent.added})
        return
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
    if end is not None:
        lines.append(f"result   {msgspec.json.encode(end.json.get('result')).decode()}")
    elif message is not None and message.error is not None:
        lines.append(f"error    {message.error}")
    elif message is not None and message.command is not None:
        lines.append("waits    for whoever carries out the command: `fairlane worker MODULE:APP`")
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
