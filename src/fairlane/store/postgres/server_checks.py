"""Checks of a PostgreSQL server for `fairlane doctor`: replication, sessions, vacuum and disk. They change nothing."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import asyncpg

from fairlane.store.statements import load

SQL = load(__package__, "doctor.sql")
_OLDEST_TRANSACTION = load(__package__, "report.sql")["oldest_transaction"]
CONNECTIONS_EACH = 10
"""Maximum number of connections of a broker process."""
TRANSACTION_SECONDS_MAX = 300.0
LAG_BYTES_MAX = 256 * 1024**2
SLOT_BYTES_MAX = 1024**3
DEAD_ROWS_MAX = 1_000_000
DEAD_RATIO_MAX = 2.0
"""Dead rows per live row. Together with the number of dead rows, it shows that vacuum does not keep up."""
FREE_BYTES_MIN = 1024**3

Finding = tuple[str, str, str]
"""A subject, the finding, and the advice. The advice is empty if nothing is wrong."""


async def check_server(connection: asyncpg.Connection[asyncpg.Record], processes: int) -> AsyncIterator[Finding]:
    """Check a primary for a broker of this many processes."""
    replicas = await connection.fetchrow(SQL["replicas"])
    assert replicas is not None
    yield _replication(replicas)
    for slot in await connection.fetch(SQL["idle_slots"], SLOT_BYTES_MAX):
        yield _slot(slot)
    yield _connections(await connection.fetchrow(SQL["connections"]), processes)
    yield _transaction(await connection.fetchrow(_OLDEST_TRANSACTION))
    yield _vacuum(await connection.fetchrow(SQL["vacuum"]))
    yield _disk(await connection.fetchrow(SQL["data_directory"]))


def _replication(row: asyncpg.Record) -> Finding:
    names, standbys, synchronous = row["names"], row["standbys"], row["synchronous"]
    count = f"{standbys} standby" if standbys == 1 else f"{standbys} standbys"
    if not standbys and not names:
        return "replication", "no standby: this server has the only copy", ""
    if row["hidden"]:
        state = f"{count}, whose state this role may not see"
        return "replication", state, "" if names else "GRANT pg_monitor to the role, and run this again"
    if not names:
        state = f"{count}, none synchronous: a failover may lose the latest commits"
        return "replication", state, "set synchronous_standby_names, for example to 'ANY 1 (a, b)'"
    if not synchronous:
        state = f"commits wait for {names}, and no such standby is connected"
        return "replication", state, "start the standby, or remove its name from synchronous_standby_names"
    if row["waits"] == "local":
        state = f"{count}, for which commits do not wait: synchronous_commit is local"
        return "replication", state, "set synchronous_commit to on"
    behind = row["behind"] or 0
    state = f"{count}, {synchronous} synchronous, at most {_mib(behind)} behind"
    advice = "look at the disk and the network of the standby: a failover to it takes long or loses commits"
    return "replication", state, advice if behind > LAG_BYTES_MAX else ""


def _slot(row: asyncpg.Record) -> Finding:
    state = f"the replication slot {row['name']} is not in use and keeps {_mib(row['bytes'])} of WAL"
    return "slot", state, f"connect its standby, or SELECT pg_drop_replication_slot('{row['name']}')"


def _connections(row: asyncpg.Record | None, processes: int) -> Finding:
    assert row is not None
    wanted = processes * CONNECTIONS_EACH
    state = f"{row['free']} of {row['allowed']} are free, and this broker takes up to {wanted}"
    enough = row["free"] >= wanted
    return "connections", state, "" if enough else "raise max_connections, end other sessions, or use a pooler"


def _transaction(row: asyncpg.Record | None) -> Finding:
    if row is None or row["seconds"] < TRANSACTION_SECONDS_MAX:
        return "transactions", "none is open for long", ""
    state = f"one of {row['application'] or 'an unnamed program'} is open for {row['seconds'] / 60:.0f} minutes"
    advice = f"end it, or SELECT pg_terminate_backend({row['pid']}): meanwhile no dead row can be removed"
    return "transactions", state, advice


def _vacuum(row: asyncpg.Record | None) -> Finding:
    assert row is not None
    if row["setting"] != "on":
        return "autovacuum", "it is off, so tables only grow", "set autovacuum and track_counts to on"
    name, dead, live = row["name"], row["dead"] or 0, row["live"] or 0
    if dead > max(DEAD_ROWS_MAX, live * DEAD_RATIO_MAX):
        state = f"{name} has {dead:,} dead rows and {live:,} others"
        return "autovacuum", state, f"end old transactions, then VACUUM {name}"
    return "autovacuum", f"on, at most {dead:,} dead rows in a table", ""


def _disk(row: asyncpg.Record | None) -> Finding:
    """Check the free space of the data directory, if the server is on this machine and tells where it is."""
    assert row is not None
    if not row["local"]:
        return "server disk", "not known: the server is on another machine", ""
    try:
        free = shutil.disk_usage(row["directory"] or "").free
    except OSError:
        return "server disk", "not known: this role or user may not see the data directory", ""
    state = f"{free / 1024**3:.1f} GiB free in {row['directory']}"
    return "server disk", state, "" if free >= FREE_BYTES_MIN else "free some space: a full disk stops the server"


def _mib(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"
