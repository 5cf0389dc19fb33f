"""The process of `fairlane poll`: handles signals, and shows how far it is."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator

from fairlane.cli.output import echo
from fairlane.poller import Progress, Source, poll


def read(source: Source, servers: list[str], *, once: bool, sweep: bool) -> None:
    """Poll a source until a signal, or once."""
    asyncio.run(_poll(source, servers, once=once, sweep=sweep))


async def _poll(source: Source, servers: list[str], *, once: bool, sweep: bool) -> None:
    with _shown(source) as report:
        polling = asyncio.create_task(poll(source, servers, once=once, sweep=sweep, report=report))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, polling.cancel)
        await asyncio.wait([polling])
    if not polling.cancelled():
        echo(_sentence(polling.result()))


@contextlib.contextmanager
def _shown(source: Source) -> Iterator[Callable[[Progress], None]]:
    """A bar for a person at a terminal; logs have what others need."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(source.queue, total=None)

        def report(progress: Progress) -> None:
            bars.update(bar, description=_sentence(progress), completed=progress.records, total=progress.total)

        yield report


def _sentence(progress: Progress) -> str:
    what = "sweep" if progress.sweeping else "read"
    return (
        f"{what}: {progress.records} records, {progress.created} created, {progress.changed} changed, "
        f"{progress.deleted} deleted"
    )
