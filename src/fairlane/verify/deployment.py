"""The deployment under test: the store, brokers behind proxies, and the clients."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

import msgspec

from fairlane.errors import Conflict, InvalidRequest
from fairlane.store.opening import store_url
from fairlane.verify.client_process import ClientTask
from fairlane.verify.history import HistoryWriter
from fairlane.verify.libraries import compile_libraries
from fairlane.verify.nemesis import FaultTargets
from fairlane.verify.processes import LocalBroker, LocalClients
from fairlane.verify.proxy import Proxy
from fairlane.verify.recording import RecordingClient
from fairlane.verify.requester import Requester
from fairlane.verify.rules import OPTIONS
from fairlane.verify.server import ServerTarget, own_server
from fairlane.verify.sql_snapshot import SQLITE, find_other_users

OWN_SERVERS = {"postgres": 1, "cells": 2}
"""Stores that belong to the run, with the number of their PostgreSQL servers."""
PREFIX = "fairlane-verify."
"""Beginning of the names of all queues that runs create."""
CLIENT_PROCESSES = 2
BROKERS = 3


class VerifyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run."""

    store: str
    seconds: float
    seed: int
    brokers: int = 0
    """Number of brokers. 0 for one on SQLite and three on PostgreSQL."""
    faults: Sequence[str] = ()
    """Names of the faults. Empty for the usual ones."""
    keep: bool = False
    beside_others: bool = False


@dataclass
class Deployment:
    """The running parts of one run."""

    url: str
    """URL of the store, past all proxies."""
    directory: Path
    client: RecordingClient
    """A client of the run itself, past all proxies."""
    targets: FaultTargets


@asynccontextmanager
async def start_deployment(plan: VerifyPlan, directory: Path) -> AsyncIterator[Deployment]:
    """Start the server, the brokers and the proxies of a run, and stop them at the end.

    Raises Conflict if others use the store, unless the plan allows it.
    """
    random = Random(plan.seed)
    if plan.store not in OWN_SERVERS:
        await _check_store(plan)
    library = await asyncio.to_thread(compile_libraries, directory)
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(own_server(directory / f"server-{number}", random, library))
            for number in range(OWN_SERVERS.get(plan.store, 0))
        ]
        url = servers[0].url if servers else store_url(plan.store)
        own_file = bool(servers) or not _exists(url)
        count = plan.brokers or (1 if url.startswith(SQLITE) else BROKERS)
        if count > 1 and url.startswith(SQLITE):
            raise InvalidRequest("an SQLite store has one broker; leave out --brokers")
        broker_url = servers[0].broker_url if servers else url
        if len(servers) > 1:
            await _join(broker_url, servers[1:])
        libraries = [
            library.load(f"broker-{number}", _files_of(url, directory / f"broker-{number}"))
            for number in range(count)
            if library is not None
        ]
        key = sha256(str(plan.seed).encode()).hexdigest()
        brokers, fronts = [], []
        for number in range(count):
            broker = LocalBroker(
                broker_url,
                directory / f"broker-{number}",
                environment={**(libraries[number].environment if libraries else {}), "FAIRLANE_ENCRYPTION_KEY": key},
            )
            stack.push_async_callback(_end, broker)
            front = Proxy(directory / f"front-{number}.sock", broker.socket, Random(random.random()))
            fronts.append(await stack.enter_async_context(front))
            brokers.append(broker)
            await broker.start()  # one after the other, because the first one creates the schema
        database = "" if url.startswith(SQLITE) else broker_url
        prefix = f"{PREFIX}{plan.seed}.{os.urandom(3).hex()}."
        task = ClientTask(
            [f"unix:{front.listen}" for front in fronts], prefix, plan.seed, 0, CLIENT_PROCESSES, "", "", database
        )
        clients = LocalClients(task, directory)
        stack.push_async_callback(clients.kill)
        yield Deployment(
            url,
            directory,
            _own_client(brokers, directory, prefix, Random(random.random()), stack),
            FaultTargets(
                Random(random.random()),
                url,
                brokers,
                clients,
                fronts,
                libraries,
                servers,
                own_file,
                [prefix + queue for queue in OPTIONS],
            ),
        )


async def _join(home_url: str, servers: Sequence[ServerTarget]) -> None:
    """Make the servers cells of the store on the first one."""
    from fairlane.store.cells.cluster import add_cell
    from fairlane.store.postgres.store import PostgresStore

    async with await PostgresStore.open(home_url) as home:
        for server in servers:
            await add_cell(home, server.broker_url)


async def _check_store(plan: VerifyPlan) -> None:
    """Raise Conflict if others use the store, unless the plan allows it."""
    try:
        url = store_url(plan.store)
    except InvalidRequest as error:
        wrong = str(error).partition(";")[0]
        raise InvalidRequest(f"{wrong}; use sqlite:///v.db, postgresql://..., postgres or cells") from None
    if url == f"{SQLITE}:memory:":
        raise InvalidRequest("a store in memory is lost with its broker; name a file, such as sqlite:///v.db")
    found = await find_other_users(url, PREFIX)
    if not plan.beside_others and (found.queues or found.sessions):
        what = (
            f"{found.sessions} sessions of brokers"
            if found.sessions
            else f"{found.queues} queue{'s' if found.queues != 1 else ''} of others"
        )
        raise Conflict(f"the store has {what}, which faults may disturb; name an empty store, or add --beside-others")


def _own_client(
    brokers: Sequence[LocalBroker], directory: Path, prefix: str, random: Random, stack: AsyncExitStack
) -> RecordingClient:
    writer = HistoryWriter(directory / "client-0.jsonl")
    stack.callback(writer.close)
    requester = Requester([f"unix:{broker.socket}" for broker in brokers])
    stack.callback(requester.close)
    return RecordingClient(requester, writer, random, prefix)


def _exists(url: str) -> bool:
    return not url.startswith(SQLITE) or Path(url.removeprefix(SQLITE)).exists()


def _files_of(url: str, data_directory: Path) -> list[Path]:
    """Return the beginnings of the paths of the files that a broker writes."""
    return [data_directory, *([Path(url.removeprefix(SQLITE))] if url.startswith(SQLITE) else [])]


async def _end(broker: LocalBroker) -> None:
    if broker.running:
        broker.signal(signal.SIGCONT)
        await broker.stop()
