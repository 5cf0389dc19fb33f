"""A store on Citus under test: the home on the coordinator, and a cell that Citus places on a node."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from fairlane.store.cells.cluster import add_cell
from fairlane.store.postgres import citus
from fairlane.store.postgres.connection import connect
from fairlane.store.postgres.store import PostgresStore
from tests.conformance.backends import CellsBackend, PostgresBackend
from tests.conformance.configurations import Configuration
from tests.postgres import PostgresServer


def at(url: str, database: str, address: str | None = None) -> str:
    """Return the URL of a database, on another node if one is given."""
    parts = urlsplit(url)
    credentials, sign, own = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{sign}{address or own}", path=f"/{database}"))


class CitusNode:
    """A node of a running cluster, in place of a server that the tests start."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.templates: set[str] = set()
        self.used: Counter[str] = Counter()

    def url(self, database: str) -> str:
        return at(self._url, database)

    def log(self) -> str:
        return ""

    @contextlib.asynccontextmanager
    async def connect(self, database: str = "postgres") -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url(database))
        try:
            yield connection
        finally:
            await connection.close()

    async def drop(self, database: str) -> None:
        async with self.connect() as admin:
            await admin.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    async def make(self, database: str) -> None:
        async with self.connect() as admin:
            await admin.execute(f'CREATE DATABASE "{database}"')
        async with self.connect(database) as fresh:
            await fresh.execute("CREATE EXTENSION citus")


async def make_database(coordinator: CitusNode, database: str) -> None:
    """Make an empty database on every node of the cluster."""
    async with coordinator.connect() as known:
        own = await known.fetchrow("SELECT nodename, nodeport FROM pg_dist_node WHERE groupid = 0")
        workers = await known.fetch("SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 ORDER BY groupid")
    nodes = [coordinator, *(CitusNode(at(coordinator.url("postgres"), "postgres", f"{h}:{p}")) for h, p in workers)]
    for node in nodes:
        await node.drop(database)
    for node in nodes:
        await node.make(database)
    async with coordinator.connect(database) as fresh:
        await fresh.execute("SELECT citus_set_coordinator_host($1, $2)", *own)
        for worker in workers:
            await fresh.execute("SELECT citus_add_node($1, $2)", *worker)


_coordinators: dict[str, CitusNode] = {}


class CitusBackend(CellsBackend):
    """A database of a Citus cluster for many tests of this process, with one cell beside the home."""

    def __init__(self, configuration: Configuration, places: Sequence[int]) -> None:
        coordinator = _coordinators.setdefault(configuration.citus, CitusNode(configuration.citus))
        self._coordinator = coordinator
        self._home = PostgresBackend(cast("PostgresServer", coordinator), configuration)
        self._home._name = f"test_{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}"
        self.url = self._home.url = coordinator.url(self._home._name)
        self.options = self._home.options
        self._cell = PostgresBackend(cast("PostgresServer", coordinator), configuration)
        self._cell._name, self._cell._schema = self._home._name, "fairlane_1"
        self._parts = [self._home, self._cell]
        self._places = itertools.cycle(places)
        self._asked = self._parts[:1] if set(places) == {0} else self._parts

    async def make(self) -> None:
        name = self._home._name
        if name not in self._coordinator.templates:
            await make_database(self._coordinator, name)
            async with await PostgresStore.open(self.url) as home:
                await add_cell(home, None)
            self._coordinator.templates.add(name)
        connection = await connect(self.url, "fairlane_1")
        owner = await citus.owner_url(connection, self.url)
        await connection.close()
        self._cell._server = cast("PostgresServer", CitusNode(owner))
        self._cell.url = owner
