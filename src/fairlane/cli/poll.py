"""`fairlane poll ...`: a process that reads a source, and shows how far it is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from fairlane.cli.output import echo
from fairlane.cli.verb import Noun, Server, arg, opt
from fairlane.errors import InvalidRequest
from fairlane.model.names import DEFAULT_SERVER
from fairlane.runtime.durations import seconds_in

if TYPE_CHECKING:
    from fairlane.poller import Progress, Source
    from fairlane.spec.ir import PollerSpec


app = Noun()


@app.command()
def poll(
    url: Annotated[str, arg("URL", "Where the records are; with --spec the name of a poller.")],
    queue: Annotated[str | None, opt("Where their messages go.", "--queue", "-q")] = None,
    spec: Annotated[
        str | None, opt("A spec that declares the poller, with all that is said of it.", metavar="FILE")
    ] = None,
    server: Server = DEFAULT_SERVER,
    name: Annotated[str | None, opt("Of the source; the URL without its query if it is not said.")] = None,
    paging: Annotated[str, opt("How the next page is found: id, token or link.")] = "id",
    items: Annotated[str, opt("Path of the list of records in an answer.")] = "",
    id: Annotated[str, opt("Path of the id in a record.")] = "id",
    next: Annotated[str, opt("Path of the token of the next page.")] = "next",
    cursor_param: Annotated[str, opt("Query parameter for the id or token.")] = "after",
    size_param: Annotated[str, opt("Query parameter for the size of a page.")] = "page_size",
    page_size: Annotated[int, opt("Records a page.")] = 100,
    total: Annotated[str | None, opt("Path of the number of all records.")] = None,
    ignore: Annotated[list[str] | None, opt("A field that makes no difference when it changes.")] = None,
    type: Annotated[str | None, opt("Messages have the type TYPE.created and so on.")] = None,
    partition: Annotated[str | None, opt("Of all messages; else each record has its own.")] = None,
    header: Annotated[list[str] | None, opt("Sent to the API: 'Name: value'.", "--header", "-H")] = None,
    token: Annotated[str | None, opt("Sent to the API as a bearer token.", envvar="FAIRLANE_POLL_TOKEN")] = None,
    every: Annotated[str, opt("How often new records are read.")] = "5m",
    sweep_every: Annotated[str, opt("How often all are read again; never.")] = "1h",
    may_be_empty: Annotated[bool, opt("Believe a sweep that finds nothing.", "--may-be-empty")] = False,
    allow_private: Annotated[bool, opt("Allow addresses of private networks.", "--allow-private")] = False,
    lease_seconds: Annotated[int, opt("How soon another poller goes on for one that died.")] = 60,
    once: Annotated[bool, opt("End when all that is new was read.", "--once")] = False,
    sweep: Annotated[bool, opt("With --once: read all again too.", "--sweep")] = False,
    log_format: Annotated[str, opt("text or json")] = "text",
    otel: Annotated[
        str, opt("Spans by OpenTelemetry: on, off, or auto if OTEL_* ask for them.", envvar="FAIRLANE_OTEL")
    ] = "auto",
) -> None:
    """Read the records of an HTTP API again and again: each that is new, changed or gone becomes a message, once."""
    given = locals()
    from fairlane.cli.logs import log_as
    from fairlane.cli.spans import start_spans
    from fairlane.poller import Source

    log_as(log_format)
    start_spans(otel, "fairlane poll")
    servers = [one.strip() for one in server.split(",")]
    if spec is not None:
        _read(declared(spec, url, allow_private=allow_private), servers, once=once, sweep=sweep)
        return
    if queue is None:
        raise InvalidRequest("say where the messages go with --queue, or with --spec which spec declares the poller")
    headers = dict(map(_header, header or []))
    if token is not None:
        headers.setdefault("Authorization", f"Bearer {token}")
    fields = {field: given[field] for field in Source.__struct_fields__ if field in given} | {
        "name": name or url.partition("?")[0],
        "ignore": tuple(ignore or ()),
        "headers": headers,
        "every_seconds": seconds_in(every),
        "sweep_seconds": None if sweep_every == "never" else seconds_in(sweep_every),
    }
    _read(Source(**fields).check(), servers, once=once, sweep=sweep)


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
    return Source(name=name, sweep_seconds=sweep_seconds or None, allow_private=allow_private, **fields).check()


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidRequest(f"{text!r:.80} is not a header; write it like 'Name: value'")
    return name.strip(), value.strip()


def _read(source: Source, servers: list[str], *, once: bool, sweep: bool) -> None:
    """Poll a source until a signal, or once."""
    import asyncio

    from fairlane.cli.screen import Bar
    from fairlane.poller import poll

    async def polled() -> None:
        with Bar() as bar:

            def report(progress: Progress) -> None:
                bar.update(_sentence(progress), progress.records, progress.total)

            polling = asyncio.create_task(poll(source, servers, once=once, sweep=sweep, report=report))
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, polling.cancel)
            await asyncio.wait([polling])
        if not polling.cancelled():
            echo(_sentence(polling.result()))

    asyncio.run(polled())


def _sentence(progress: Progress) -> str:
    what = "sweep" if progress.sweeping else "read"
    return (
        f"{what}: {progress.records} records, {progress.created} created, {progress.changed} changed, "
        f"{progress.deleted} deleted"
    )
