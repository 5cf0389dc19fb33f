"""`fairlane poll ...`"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlane.cli.connection import DEFAULT, Server
from fairlane.errors import InvalidRequest
from fairlane.runtime.durations import seconds_in

if TYPE_CHECKING:
    from fairlane.poller import Source
    from fairlane.spec.ir import PollerSpec


def poll(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="Where the records are; with --spec the name of a poller.", show_default=False
        ),
    ],
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Where their messages go.", show_default=False)
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A spec that declares the poller, with all that is said of it.", show_default=False
        ),
    ] = None,
    server: Server = DEFAULT,
    name: Annotated[
        str | None, typer.Option(help="Of the source; the URL without its query if it is not said.", show_default=False)
    ] = None,
    paging: Annotated[str, typer.Option(help="How the next page is found: id, token or link.")] = "id",
    items: Annotated[str, typer.Option(help="Path of the list of records in an answer.")] = "",
    id: Annotated[str, typer.Option(help="Path of the id in a record.")] = "id",
    next: Annotated[str, typer.Option(help="Path of the token of the next page.")] = "next",
    cursor_param: Annotated[str, typer.Option(help="Query parameter for the id or token.")] = "after",
    size_param: Annotated[str, typer.Option(help="Query parameter for the size of a page.")] = "page_size",
    page_size: Annotated[int, typer.Option(help="Records a page.")] = 100,
    total: Annotated[str | None, typer.Option(help="Path of the number of all records.", show_default=False)] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A field that makes no difference when it changes.", show_default=False)
    ] = None,
    type: Annotated[
        str | None, typer.Option(help="Messages have the type TYPE.created and so on.", show_default=False)
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="Of all messages; else each record has its own.", show_default=False)
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="Sent to the API: 'Name: value'.", show_default=False)
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="FAIRLANE_POLL_TOKEN", help="Sent to the API as a bearer token.", show_default=False),
    ] = None,
    every: Annotated[str, typer.Option(help="How often new records are read.")] = "5m",
    sweep_every: Annotated[str, typer.Option(help="How often all are read again; never.")] = "1h",
    may_be_empty: Annotated[bool, typer.Option("--may-be-empty", help="Believe a sweep that finds nothing.")] = False,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Allow addresses of private networks.")
    ] = False,
    lease_seconds: Annotated[int, typer.Option(help="How soon another poller goes on for one that died.")] = 60,
    once: Annotated[bool, typer.Option("--once", help="End when all that is new was read.")] = False,
    sweep: Annotated[bool, typer.Option("--sweep", help="With --once: read all again too.")] = False,
    log_format: Annotated[str, typer.Option(help="text or json")] = "text",
) -> None:
    """Read the records of an HTTP API again and again: each that is new, changed or gone becomes a message, once."""
    from fairlane.cli.logs import log_as
    from fairlane.cli.poll_process import read
    from fairlane.poller import Source

    log_as(log_format)
    servers = [one.strip() for one in server.split(",")]
    if spec is not None:
        read(declared(spec, url, allow_private=allow_private), servers, once=once, sweep=sweep)
        return
    if queue is None:
        raise InvalidRequest("say where the messages go with --queue, or with --spec which spec declares the poller")
    headers = dict(map(_header, header or []))
    if token is not None:
        headers.setdefault("Authorization", f"Bearer {token}")
    source = Source(
        name=name or url.partition("?")[0],
        url=url,
        queue=queue,
        paging=paging,  # type: ignore[arg-type]  # `check` says what it must be
        items=items,
        id=id,
        next=next,
        cursor_param=cursor_param,
        size_param=size_param,
        page_size=page_size,
        total=total,
        ignore=ignore or [],
        type=type,
        partition=partition,
        headers=headers,
        every_seconds=seconds_in(every),
        sweep_seconds=None if sweep_every == "never" else seconds_in(sweep_every),
        may_be_empty=may_be_empty,
        allow_private=allow_private,
        lease_seconds=lease_seconds,
    ).check()
    read(source, servers, once=once, sweep=sweep)


def declared(file: str, name: str, *, allow_private: bool) -> Source:
    """A poller of a spec. Its token is read from the environment variable that the spec names."""
    from fairlane.cli.spec import compiled
    from fairlane.config import own_variables
    from fairlane.spec.text.source import suggestion

    pollers = compiled(file).pollers
    if name not in pollers:
        raise InvalidRequest(f"there is no poller `{name}` in {file}; {suggestion(name, pollers)}")
    return source_of(name, pollers[name], own_variables, allow_private=allow_private)


def source_of(
    name: str,
    declared: PollerSpec,
    variables: Callable[[Sequence[str]], Sequence[str]],
    *,
    allow_private: bool = False,
) -> Source:
    """What a poller of a spec reads. `variables` gives what environment variables hold."""
    from fairlane.poller import Source

    fields = msgspec.structs.asdict(declared)
    token_env, sweep_seconds = fields.pop("token_env"), fields.pop("sweep_seconds")
    if token_env is not None:
        fields["headers"] = {"Authorization": f"Bearer {variables([token_env])[0]}"}
    fields["ignore"] = list(fields["ignore"])
    return Source(name=name, sweep_seconds=sweep_seconds or None, allow_private=allow_private, **fields).check()


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidRequest(f"{text!r:.80} is not a header; write it like 'Name: value'")
    return name.strip(), value.strip()
