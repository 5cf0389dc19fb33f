"""`fairlane hook ...`"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.spec import File, compiled
from fairlane.config import named_variables
from fairlane.errors import InvalidRequest
from fairlane.runtime.clock import wall_clock

app = typer.Typer(help="Webhooks that a spec declares.", no_args_is_help=True)


@app.callback()
def webhooks() -> None:
    """Keeps `sign` a command of its own while it is the only one."""


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
    from fairlane.spec.source import suggestion

    spec = compiled(file)
    if webhook not in spec.webhooks:
        raise InvalidRequest(f"there is no webhook `{webhook}` in {file}; {suggestion(webhook, spec.webhooks)}")
    verify = spec.webhooks[webhook].verify
    if verify is None:
        raise InvalidRequest(f"the webhook `{webhook}` is not signed: it has no `verify`")
    scheme = scheme_of(verify)
    key = keys_of(scheme, named_variables(verify.secret_env))[0]
    headers = signed(scheme, key, _body(body), delivery_id=delivery_id or str(uuid.uuid4()), now=wall_clock() / 1e6)
    for name, value in headers.items():
        sys.stdout.write(f"{name.decode('ascii')}: {value.decode('latin-1')}\n")


def _body(file: str) -> bytes:
    """The very bytes: a signature is of nothing else."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None
