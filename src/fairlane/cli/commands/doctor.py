"""`fairlane doctor`: checks of the machine and the store that a broker needs."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from click.exceptions import Exit

from fairlane.cli.commands.serve import given_settings, settings_options
from fairlane.cli.toolkit.command import AsJson, CommandGroup
from fairlane.cli.toolkit.output import print_json, printable
from fairlane.cli.toolkit.parameters import parameter
from fairlane.config import EMBEDDED, Settings

_FREE_BYTES_MIN = 1024**3
_SYNC_MS_MAX = 20.0
_SYNCS = 20
_BROKER_SECONDS = 5.0


class Check(NamedTuple):
    """The result of one check."""

    name: str
    state: str
    advice: str = ""
    """Advice to fix the problem. Empty if the check passed."""


app = CommandGroup()


_SETTINGS = ("store", "data_dir", "host", "port", "listen_url", "statement_cache", "workers")


def doctor(config: Path | None, json: bool, **options: Any) -> None:
    """Check the store, disk, clock, port and versions that a broker needs, and print advice for each problem.

    Reads the same settings as `fairlane serve`, including FAIRLANE_* and the config file. Exits 1 if a check fails.
    """
    import asyncio

    checks = asyncio.run(_run_checks(given_settings(options, config)))
    if json:
        print_json([{"check": one.name, "is": one.state, "ok": not one.advice, "advice": one.advice} for one in checks])
    else:
        for one in checks:
            sys.stdout.write(printable(f"{'no' if one.advice else 'ok':<4}{one.name:<20}{one.state}") + "\n")
            if one.advice:
                sys.stdout.write(printable(f"    {'':<20}{one.advice}") + "\n")
    if any(one.advice for one in checks):
        raise Exit(1)


app.add("doctor", doctor, doctor.__doc__, [*settings_options(*_SETTINGS), parameter("json", AsJson, False)])


async def _run_checks(settings: Settings) -> list[Check]:
    found = [*_versions(), *_disk("data directory", Path(settings.data_dir)), await _port(settings)]
    return found + [check async for check in _store(settings)]


def _versions() -> Iterator[Check]:
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("versions", f"fairlane {version('fairlane')}, Python {python}")


def _disk(what: str, directory: Path) -> Iterator[Check]:
    """Check that the directory, or its nearest existing parent, is writable, has free space and syncs fast."""
    import shutil
    import tempfile

    existing = next(one for one in (directory, *directory.absolute().parents) if one.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Check(
            what, f"{existing} is not writable", "make it writable for the broker's user, or choose another directory"
        )
        return
    free = shutil.disk_usage(existing).free
    low = free < _FREE_BYTES_MIN
    yield Check(
        what,
        f"{free / 1024**3:.1f} GiB free in {existing}",
        "free some space: a full disk stops the broker" if low else "",
    )
    with tempfile.TemporaryFile(dir=existing) as file:
        began = perf_counter()
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        ms = (perf_counter() - began) / _SYNCS * 1000
    slow = ms > _SYNC_MS_MAX
    yield Check("fsync", f"{ms:.2f} ms", "use a faster disk: every commit waits for an fsync" if slow else "")


async def _port(settings: Settings) -> Check:
    import socket

    where = f"{settings.host or '0.0.0.0'}:{settings.port}"  # noqa: S104
    try:
        with socket.create_server((settings.host, settings.port), reuse_port=False):
            return Check("port", f"{where} is free")
    except OSError as error:
        advice = "stop the program that listens there, or choose another port with --port"
        otherwise = Check("port", f"{where} is not available: {error.strerror}", advice)
    return await _broker(settings, where) or otherwise


async def _broker(settings: Settings, where: str) -> Check | None:
    """Check the health of the broker at the port. Returns None if no broker answers."""
    from fairlane.client import Client
    from fairlane.errors import FairlaneError, Forbidden, Unauthenticated

    local = "127.0.0.1" if settings.host in ("", "0.0.0.0") else settings.host  # noqa: S104
    scheme = "https" if settings.tls_cert else "http"
    try:
        async with Client(f"{scheme}://{local}:{settings.port}", attempts=1, timeout=_BROKER_SECONDS) as client:
            health, journal = await client.status.health(), (await client.status.journal()).journal
    except (Unauthenticated, Forbidden):
        return Check(
            "port", f"{where}: a broker runs there and requires a key; set FAIRLANE_KEY to one with the scope status"
        )
    except FairlaneError:
        return None
    running = f"{where}: fairlane {health.version} runs there, and its store"
    if health.status == "healthy":
        return Check("port", f"{running} answers")
    why = (journal and journal.why_not) or "it does not answer"
    return Check("port", f"{running} is unavailable: {why}", "repair the store; the broker recovers by itself")


async def _store(settings: Settings) -> AsyncIterator[Check]:
    if settings.store.startswith("sqlite:///"):
        file = Path(settings.store.removeprefix("sqlite:///"))
        if str(file) == ":memory:":
            yield Check("store", "the store is in memory", "use a file: all messages are lost when the broker stops")
            return
        if not file.parent.is_dir():
            yield Check("store", f"the directory {file.parent} does not exist", "create it, or choose another file")
            return
        for check in _disk("store", file.parent):
            yield check
        from importlib.metadata import version

        # The broker uses the SQLite library of apsw, not that of Python.
        yield Check("version", f"SQLite {version('apsw').rpartition('.')[0]}")
    elif settings.store == EMBEDDED:
        yield Check("store", "an embedded PostgreSQL in the data directory")
    else:
        from fairlane.store.postgres.doctor import diagnose

        async for found in diagnose(settings.store, settings.listen_url, settings.statement_cache, settings.workers):
            yield Check(*found)
