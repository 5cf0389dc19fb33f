"""`fairlane poll ...`: a process that reads a source and shows its progress."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated

import click

from fairlane.cli.processes.poller_source import source_of
from fairlane.cli.toolkit.command import CommandGroup, Server, arg, command, opt
from fairlane.cli.toolkit.output import echo
from fairlane.errors import InvalidRequest
from fairlane.model.names import DEFAULT_SERVER
from fairlane.runtime.durations import seconds_in

if TYPE_CHECKING:
    from fairlane.poller import Progress, Source


app = CommandGroup()


@command(app)
def poll(
    url: Annotated[str, arg("URL", "URL of the records; with --spec the name of a poller.")],
    queue: Annotated[str | None, opt("Queue for the messages.", "--queue", "-q")] = None,
    spec: Annotated[
        str | None, opt("Spec that declares the poller and its options.", metavar="FILE", type=click.Path())
    ] = None,
    server: Server = DEFAULT_SERVER,
    name: Annotated[str | None, opt("Name of the source; by default the URL without its query.")] = None,
    paging: Annotated[str, opt("How the next page is found: id, token or link.")] = "id",
    items: Annotated[str, opt("Path of the list of records in a response; by default the response is the list.")] = "",
    id: Annotated[str, opt("Path of the id in a record.")] = "id",
    next: Annotated[str, opt("Path of the token of the next page.")] = "next",
    cursor_param: Annotated[str, opt("Query parameter for the id or token.")] = "after",
    size_param: Annotated[str, opt("Query parameter for the page size.")] = "page_size",
    page_size: Annotated[int, opt("Records per page.")] = 100,
    total: Annotated[str | None, opt("Path of the total number of records.")] = None,
    ignore: Annotated[tuple[str, ...], opt("Field whose changes are ignored. Can be repeated.")] = (),
    type: Annotated[str | None, opt("Prefix of the message types TYPE.created, TYPE.changed and TYPE.deleted.")] = None,
    partition: Annotated[str | None, opt("Partition of all messages; by default each record has its own.")] = None,
    header: Annotated[
        tuple[str, ...], opt("Header to send to the API, like 'Name: value'. Can be repeated.", "--header", "-H")
    ] = (),
    token: Annotated[str | None, opt("Bearer token to send to the API.", envvar="FAIRLANE_POLL_TOKEN")] = None,
    every: Annotated[str, opt("Interval between reads of new records.")] = "5m",
    sweep_every: Annotated[str, opt("Interval between reads of all records, or never.")] = "1h",
    may_be_empty: Annotated[bool, opt("Treat all records as deleted if a sweep finds none.", "--may-be-empty")] = False,
    allow_private: Annotated[bool, opt("Allow addresses in private networks.", "--allow-private")] = False,
    lease_seconds: Annotated[int, opt("Seconds after which another poller takes over from one that died.")] = 60,
    once: Annotated[bool, opt("Exit after all new records were read.", "--once")] = False,
    sweep: Annotated[bool, opt("With --once, also read all records again.", "--sweep")] = False,
    log_format: Annotated[str, opt("Log format: text or json.")] = "text",
    otel: Annotated[
        str, opt("OpenTelemetry spans: on, off, or auto to follow OTEL_*.", envvar="FAIRLANE_OTEL")
    ] = "auto",
) -> None:
    """Poll an HTTP API and push one message for each record that is new, changed or deleted."""
    given = locals()
    from fairlane.cli.processes.logs import configure_logging
    from fairlane.cli.processes.otel import start_otel
    from fairlane.poller import Source

    configure_logging(log_format)
    start_otel(otel, "fairlane poll")
    servers = [one.strip() for one in server.split(",")]
    if spec is not None:
        _read(source_in_spec(spec, url, allow_private=allow_private), servers, once=once, sweep=sweep)
        return
    if queue is None:
        raise InvalidRequest("name a queue with --queue, or a spec that declares the poller with --spec")
    headers = dict(map(_header, header))
    if token is not None:
        headers.setdefault("Authorization", f"Bearer {token}")
    fields = {field: given[field] for field in Source.__struct_fields__ if field in given} | {
        "name": name or url.partition("?")[0],
        "ignore": ignore,
        "headers": headers,
        "every_seconds": seconds_in(every),
        "sweep_seconds": None if sweep_every == "never" else seconds_in(sweep_every),
    }
    _read(Source(**fields).check(), servers, once=once, sweep=sweep)


def source_in_spec(file: str, name: str, *, allow_private: bool) -> Source:
    """Return the source of a poller in a spec. Its token is read from the environment variable that the spec names."""
    from fairlane.cli.commands.spec import compiled
    from fairlane.config import own_variables
    from fairlane.spec.text.source import suggestion

    pollers = compiled(file).pollers
    if name not in pollers:
        raise InvalidRequest(f"there is no poller `{name}` in {file}; {suggestion(name, pollers)}")
    return source_of(name, pollers[name], own_variables, allow_private=allow_private)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InvalidRequest(f"{text!r:.80} is not a header; write it like 'Name: value'")
    return name.strip(), value.strip()


def _read(source: Source, servers: list[str], *, once: bool, sweep: bool) -> None:
    """Poll a source once, or until a signal."""
    import asyncio

    from fairlane.cli.toolkit.screen import ProgressBar
    from fairlane.poller import poll

    async def run() -> None:
        with ProgressBar() as bar:

            def report(progress: Progress) -> None:
                bar.update(_sentence(progress), progress.records, progress.total)

            polling = asyncio.create_task(poll(source, servers, once=once, sweep=sweep, report=report))
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, polling.cancel)
            await asyncio.wait([polling])
        if not polling.cancelled():
            echo(_sentence(polling.result()))

    asyncio.run(run())


def _sentence(progress: Progress) -> str:
    what = "sweep" if progress.sweeping else "read"
    return (
        f"{what}: {progress.records} records, {progress.created} created, {progress.changed} changed, "
        f"{progress.deleted} deleted"
    )
