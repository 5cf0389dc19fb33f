"""`fairlane export` and `fairlane import`: queues as lines of JSON."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from fairlane.cli.commands.serve import given_settings, settings_options
from fairlane.cli.toolkit.command import AsJson, CommandGroup, Output, print_output
from fairlane.cli.toolkit.output import echo, plural
from fairlane.cli.toolkit.parameters import arg, opt, parameter
from fairlane.config import EMBEDDED
from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from fairlane.store.exchange.importing import Imported

app = CommandGroup()
_GZIP = b"\x1f\x8b"


def export(
    queues: tuple[str, ...], output: Path | None, compress: bool, overwrite: bool, config: Path | None, **options: Any
) -> None:
    """Write queues as lines of JSON: messages with all fields, dead letters, groups with their place, and options.

    Without queues, writes the whole store, also schedules, specs, and keys without their secrets. Reads one moment of
    the store, beside a running broker. Reads the settings of `fairlane serve`.
    """
    import asyncio

    from fairlane.cli.toolkit.screen import ProgressBar
    from fairlane.store.exchange.stores import export_store

    url = _url(given_settings(options, config).store)

    async def write(file: IO[bytes]) -> int:
        count = 0
        with ProgressBar() as bar:
            async for line in export_store(url, queues, bar.update):
                file.write(line)
                count += 1
        return count

    with _opened(output, overwrite) as raw, ExitStack() as stack:
        file: Any = stack.enter_context(gzip.GzipFile(fileobj=raw, mode="wb", mtime=0)) if compress else raw
        count = asyncio.run(write(file))
    echo(f"Exported {plural(count, 'line')}{f' to {output}' if output else ''}.")


def import_(file: Path, config: Path | None, json: bool, **options: Any) -> None:
    """Add the queues of an export to a store, with their groups where they were. `-` reads standard input.

    Adds each queue completely or not at all, and nothing that the store has already. If it is interrupted, run it again
    to continue. Stop the broker of an SQLite store first; brokers on PostgreSQL may run.
    """
    import asyncio

    from fairlane.cli.toolkit.screen import ProgressBar
    from fairlane.store.exchange.stores import import_lines

    url = _url(given_settings(options, config).store)
    with _lines(file) as lines, ProgressBar() as bar:
        done = asyncio.run(import_lines(url, lines, bar.update))
    for reason in done.left_out:
        echo(f"Not imported: {reason}.")
    value = {"queues": done.queues, "present": done.present, "messages": done.messages, "leftOut": done.left_out}
    print_output(Output(value, _sentence(done)), json)


def _sentence(done: Imported) -> str:
    text = f"Imported {plural(len(done.queues), 'queue')}."
    return f"{text} {plural(len(done.present), 'queue')} had every message already." if done.present else text


@contextmanager
def _opened(output: Path | None, overwrite: bool) -> Iterator[IO[bytes]]:
    """Open the output. A file gets its name only when it is complete and on disk."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if output.exists() and not overwrite:
        raise InvalidRequest(f"{output} exists; name another file, or add --overwrite")
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, output)
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _lines(file: Path) -> Iterator[Iterator[bytes]]:
    """Open an export, compressed or not."""
    with ExitStack() as stack:
        try:
            raw: Any = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
            if raw.peek(2)[:2] == _GZIP:
                raw = stack.enter_context(gzip.GzipFile(fileobj=raw))
            yield iter(raw)
        except (OSError, EOFError) as error:
            raise InvalidRequest(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _url(store: str) -> str:
    from fairlane.store.opening import store_url

    if store == EMBEDDED:
        raise InvalidRequest("name the store with its postgresql:// URL, not as embedded PostgreSQL")
    if (url := store_url(store)).endswith(":memory:"):
        raise InvalidRequest("a store in memory belongs to its broker; name a file or a postgresql:// URL")
    return url


app.add(
    "export",
    export,
    export.__doc__,
    [
        parameter("queues", Annotated[tuple[str, ...], arg("QUEUE", "Queues to export. All by default.")], ()),
        parameter(
            "output", Annotated[Path | None, opt("File to write instead of standard output.", "--output", "-o")], None
        ),
        parameter("compress", Annotated[bool, opt("Compress with gzip.", "--compress")], False),
        parameter("overwrite", Annotated[bool, opt("Replace the file if it exists.", "--overwrite")], False),
        *settings_options("store"),
    ],
)
app.add(
    "import",
    import_,
    import_.__doc__,
    [
        parameter("file", Annotated[Path, arg("FILE", "Export to read, compressed or not.")]),
        *settings_options("store"),
        parameter("json", AsJson, False),
    ],
)
