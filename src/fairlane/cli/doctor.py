"""`fairlane doctor`: what a broker needs of this machine and its store, looked at before it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from fairlane.cli import Exit
from fairlane.cli.output import print_json, printable
from fairlane.cli.serve import options
from fairlane.cli.verb import JSON, Noun
from fairlane.config import EMBEDDED, Settings, load_settings

_FREE_BYTES_MIN = 1024**3
_SYNC_MS_MAX = 20.0
_SYNCS = 20
_BROKER_SECONDS = 5.0


class Finding(NamedTuple):
    check: str
    is_so: str
    advice: str = ""
    """What to do; nothing if all is well."""


app = Noun()


_SETTINGS = ("store", "data_dir", "host", "port", "listen_url", "statement_cache")


def doctor(config: Path | None, json: bool, **flags: Any) -> None:
    """Look at what a broker needs here: its store, disk, clock, port and versions; and say what to do about each.

    Takes the settings of `fairlane serve`, also from FAIRLANE_* and a file. Exits 1 if something is to be done.
    """
    import asyncio

    findings = asyncio.run(_examined(load_settings(flags, config)))
    if json:
        print_json(
            [{"check": one.check, "is": one.is_so, "ok": not one.advice, "advice": one.advice} for one in findings]
        )
    else:
        for one in findings:
            sys.stdout.write(printable(f"{'no' if one.advice else 'ok':<4}{one.check:<20}{one.is_so}") + "\n")
            if one.advice:
                sys.stdout.write(printable(f"    {'':<20}{one.advice}") + "\n")
    if any(one.advice for one in findings):
        raise Exit(1)


app.add("doctor", doctor, doctor.__doc__, lambda: [*options(*_SETTINGS), JSON])


async def _examined(settings: Settings) -> list[Finding]:
    found = [*_versions(), *_disk("data directory", Path(settings.data_dir)), await _port(settings)]
    return found + [finding async for finding in _store(settings)]


def _versions() -> Iterator[Finding]:
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("versions", f"fairlane {version('fairlane')}, Python {python}")


def _disk(what: str, directory: Path) -> Iterator[Finding]:
    """Whether files can be written where the directory is, or would be made; how much room there is and how fast."""
    import shutil
    import tempfile

    there = next(one for one in (directory, *directory.absolute().parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding(what, f"{there} cannot be written to", "let the user of the broker write there, or name another")
        return
    free = shutil.disk_usage(there).free
    low = free < _FREE_BYTES_MIN
    yield Finding(
        what, f"{free / 1024**3:.1f} GiB free in {there}", "make room: a full disk stops the broker" if low else ""
    )
    with tempfile.TemporaryFile(dir=there) as file:
        began = perf_counter()
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        ms = (perf_counter() - began) / _SYNCS * 1000
    slow = ms > _SYNC_MS_MAX
    yield Finding("fsync", f"{ms:.2f} ms", "use a faster disk: each commit waits for one" if slow else "")


async def _port(settings: Settings) -> Finding:
    import socket

    where = f"{settings.host or '0.0.0.0'}:{settings.port}"  # noqa: S104
    try:
        with socket.create_server((settings.host, settings.port), reuse_port=False):
            return Finding("port", f"{where} is free")
    except OSError as error:
        advice = "stop what listens there, or choose another with --port"
        otherwise = Finding("port", f"{where} cannot be taken: {error.strerror}", advice)
    return await _broker(settings, where) or otherwise


async def _broker(settings: Settings, where: str) -> Finding | None:
    """Check the health of the broker at the port. Returns None if no broker answers."""
    from fairlane.client import Client
    from fairlane.errors import FairlaneError, Forbidden, Unauthenticated

    local = "127.0.0.1" if settings.host in ("", "0.0.0.0") else settings.host  # noqa: S104
    scheme = "https" if settings.tls_cert else "http"
    try:
        async with Client(f"{scheme}://{local}:{settings.port}", attempts=1, timeout=_BROKER_SECONDS) as client:
            health, journal = await client.status.health(), (await client.status.journal()).journal
    except (Unauthenticated, Forbidden):
        return Finding("port", f"{where}: a broker is there, and asks for a key: set FAIRLANE_KEY to one with status")
    except FairlaneError:
        return None
    is_there = f"{where}: fairlane {health.version} is there, and its store"
    if health.status == "healthy":
        return Finding("port", f"{is_there} answers")
    why = (journal and journal.why_not) or "it does not answer"
    return Finding("port", f"{is_there} is away: {why}", "see to the store; the broker goes on by itself")


async def _store(settings: Settings) -> AsyncIterator[Finding]:
    if settings.store.startswith("sqlite:///"):
        file = Path(settings.store.removeprefix("sqlite:///"))
        if str(file) == ":memory:":
            yield Finding("store", "it is in memory", "name a file: everything is gone when the broker stops")
            return
        if not file.parent.is_dir():
            yield Finding("store", f"there is no directory {file.parent}", "make it, or name another file")
            return
        for finding in _disk("store", file.parent):
            yield finding
        from importlib.metadata import version

        # The one that apsw brings and the broker uses, not that of Python.
        yield Finding("version", f"SQLite {version('apsw').rpartition('.')[0]}")
    elif settings.store == EMBEDDED:
        yield Finding("store", "an embedded PostgreSQL in the data directory")
    else:
        from fairlane.store.postgres.examine import examine

        async for found in examine(settings.store, settings.listen_url, settings.statement_cache):
            yield Finding(*found)
