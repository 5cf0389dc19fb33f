"""Broker, client and blocking client have the same nouns and verbs, with the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import Broker, Client, blocking
from fairlane.client.resource import ClientResource

Signature = list[tuple[str, Any, Any]]

ONE_SIDED = {
    "buffer": "collects pushes for one request; a broker batches by itself",
    "cells.all": "process.cells.all of a broker, because cells are those of all tenants",
    "consume": "handlers of a program beside the broker are a worker's, or the broker's commands",
    "consumer": "as consume",
    "result": "waits over HTTP; a broker has results.get with wait",
    "webhooks.test": "sends a request to the server; a broker has hooks.sample",
    "keys.whoami": "tells who calls, as the server knows him",
    "tenants.create_key": "keys.create of the broker under that tenant",
    "tenants.own": "the tenant of who calls, as the server knows him",
    "traces.named": "notes of Queen's clients, which a broker serves over HTTP",
    "traces.names": "as traces.named",
    "traces.of_message": "as traces.named",
    "status.health": "of the process that answers",
    "status.overview": "statistics.overview",
    "status.system": "of the process that answers",
}
"""Verbs that only a client has, or that a broker names differently, each with the reason."""
OTHERWISE = {
    "audit.page": "a broker takes the query of the API, and a tenant",
    "dead_letters.count": "as page",
    "dead_letters.errors": "a broker takes the query of the API, and tells whether all were counted",
    "dead_letters.page": "a broker takes a filter and a cursor",
    "dead_letters.purge": "as page",
    "dead_letters.replay": "as page; its payload is bytes",
    "findings.snooze": "a broker takes the name of the caller",
    "groups.all": "a broker lists the groups of one queue; summaries are those of all",
    "pauses.lanes": "a broker takes the query of the API, and returns a page",
    "release": "a broker may give one partition of a lease back",
    "queues.all": "a broker lists all queues as they are set up; page takes the query of the API",
    "retention.history": "a broker takes the query of the API",
    "schedules.define": "a broker takes the options as one value",
}
"""Verbs whose parameters differ, each with the reason."""


def parameters(verb: Any) -> Signature:
    """Return names, kinds and defaults of parameters, without the caller, which only requests have."""
    given = inspect.signature(verb).parameters.values()
    return [(one.name, one.kind, one.default) for one in given if one.name not in ("self", "caller")]


def verbs(owner: Any) -> Iterator[tuple[str, Any]]:
    for name, found in inspect.getmembers(owner, inspect.isroutine):
        if not name.startswith("_"):
            yield name, found


def of_client(client: Client) -> Iterator[tuple[str, str, Any]]:
    """Return (noun, verb, function). Message verbs have no noun."""
    for verb, found in verbs(client):
        yield "", verb, found
    for noun, part in vars(client).items():
        if isinstance(part, ClientResource) and not noun.startswith("_"):
            for verb, found in verbs(part):
                yield noun, verb, found


@pytest.fixture
async def client() -> Client:
    return Client("http://127.0.0.1:1")


async def test_what_a_client_can_a_broker_can_by_the_same_names(client: Client, tmp_path: Path) -> None:
    missing, differ = set(), set()
    async with Broker.open(tmp_path / "queue.db") as broker:
        for noun, verb, found in of_client(client):
            name = f"{noun}.{verb}" if noun else verb
            own = getattr(getattr(broker, noun, None) if noun else broker, verb, None)
            if own is None:
                missing.add(name)
            elif parameters(own) != parameters(found):
                differ.add(name)
    await client.close()
    assert missing == ONE_SIDED.keys()
    assert differ == OTHERWISE.keys()


async def test_the_blocking_client_is_made_of_the_other_one(client: Client) -> None:
    with blocking.Client("http://127.0.0.1:1") as waiting:
        for noun, verb, found in of_client(client):
            own = getattr(getattr(waiting, noun) if noun else waiting, verb)
            assert parameters(own) == parameters(found), f"{noun}.{verb}"
    await client.close()
