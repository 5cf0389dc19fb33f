"""The stage of a run: the store, brokers with proxies before them, and the clients, each in its place."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import quote_plus

import msgspec

from fairlane.errors import Conflict, InvalidRequest
from fairlane.store.opening import store_url
from fairlane.verify.census import SQLITE, find_occupants
from fairlane.verify.client_process import ClientTask
from fairlane.verify.history import HistoryWriter
from fairlane.verify.nemesis import FaultTargets
from fairlane.verify.preload import Preload, compile_library, has_compiler
from fairlane.verify.processes import LocalBroker, LocalClients
from fairlane.verify.proxy import Proxy
from fairlane.verify.recording import RecordingClient
from fairlane.verify.requester import Requester
from fairlane.verify.server import OwnServer

EMBEDDED = "postgres"
PREFIX = "fairlane-verify."
"""Beginning of the names of all queues that runs create."""
CLIENT_PROCESSES = 2
BROKERS = 3
CONNECTIONS = 60


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
class Stage:
    """The running parts of one run."""

    url: str
    """URL of the store, past all proxies."""
    directory: Path
    client: RecordingClient
    """A client of the run itself, past all proxies."""
    targets: FaultTargets


@asynccontextmanager
async def open_stage(plan: VerifyPlan, directory: Path) -> AsyncIterator[Stage]:
    """Start the server, the brokers and the proxies of a run, and stop them at the end.

    Raises Conflict if others use the store, unless the plan allows it.
    """
    random = Random(plan.seed)
    if plan.store != EMBEDDED:
        await _check_store(plan)
    library = await asyncio.to_thread(compile_library, directory) if has_compiler() else None
    async with AsyncExitStack() as stack:
        server_preload = Preload(library, "server.faults") if library is not None and plan.store == EMBEDDED else None
        url, server = _open_store(plan, directory, server_preload, stack)
        count = plan.brokers or (1 if url.startswith(SQLITE) else BROKERS)
        if count > 1 and url.startswith(SQLITE):
            raise InvalidRequest("an SQLite store has one broker; leave out --brokers")
        broker_url, back = url, None
        if server is not None:
            back = await stack.enter_async_context(_back_proxy(server, directory, random))
            broker_url = url.replace(quote_plus(str(server.socket.parent)), quote_plus(str(back.listen.parent)))
        preloads = [Preload(library, f"broker-{number}.faults") for number in range(count)] if library else []
        brokers, fronts = [], []
        for number in range(count):
            broker = LocalBroker(
                broker_url, directory / f"broker-{number}", environment=_environment(preloads[number : number + 1])
            )
            stack.push_async_callback(_end, broker)
            front = Proxy(directory / f"front-{number}.sock", broker.socket, Random(random.random()))
            fronts.append(await stack.enter_async_context(front))
            brokers.append(broker)
            await broker.start()  # one after the other, because the first one creates the schema
        prefix = f"{PREFIX}{plan.seed}.{os.urandom(3).hex()}."
        task = ClientTask([f"unix:{front.listen}" for front in fronts], prefix, plan.seed, 0, CLIENT_PROCESSES, "", "")
        clients = LocalClients(task, directory)
        stack.push_async_callback(clients.kill)
        yield Stage(
            url,
            directory,
            _own_client(brokers, directory, prefix, Random(random.random()), stack),
            FaultTargets(
                Random(random.random()), url, brokers, clients, fronts, preloads, server, server_preload, back
            ),
        )


def _open_store(
    plan: VerifyPlan, directory: Path, preload: Preload | None, stack: AsyncExitStack
) -> tuple[str, OwnServer | None]:
    """Return the URL of the store, and its server if that belongs to the run."""
    if plan.store == EMBEDDED:
        from fairlane.store.postgres.embedded import EmbeddedPostgres

        environment = _environment([preload] if preload is not None else [])
        postgres = EmbeddedPostgres(directory, connections=CONNECTIONS, environment=environment)
        server = OwnServer(stack.enter_context(postgres))
        return server.url, server
    return store_url(plan.store), None


async def _check_store(plan: VerifyPlan) -> None:
    """Raise Conflict if others use the store, unless the plan allows it."""
    found = await find_occupants(store_url(plan.store), PREFIX)
    if not plan.beside_others and (found.queues or found.sessions):
        what = f"{found.sessions} sessions of brokers" if found.sessions else f"{found.queues} queues of others"
        raise Conflict(f"the store has {what}, which faults may disturb; name an empty store, or add --beside-others")


def _back_proxy(server: OwnServer, directory: Path, random: Random) -> Proxy:
    """Return a proxy between the brokers and the server."""
    folder = directory / "back"
    folder.mkdir(mode=0o700)
    return Proxy(folder / server.socket.name, server.socket, Random(random.random()))


def _own_client(
    brokers: Sequence[LocalBroker], directory: Path, prefix: str, random: Random, stack: AsyncExitStack
) -> RecordingClient:
    writer = HistoryWriter(directory / "client-0.jsonl")
    stack.callback(writer.close)
    requester = Requester([f"unix:{broker.socket}" for broker in brokers])
    stack.callback(requester.close)
    return RecordingClient(requester, writer, random, prefix)


def _environment(preloads: Sequence[Preload]) -> Mapping[str, str]:
    return preloads[0].environment if preloads else {}


async def _end(broker: LocalBroker) -> None:
    if broker.running:
        broker.signal(signal.SIGCONT)
        await broker.stop()
