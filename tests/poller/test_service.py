"""Pollers of applied specs, run by broker processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from fairlane import Client
from tests.broker_process import BrokerProcess, broker_process
from tests.conftest import FreshDatabase
from tests.poller.api import Api
from tests.postgres import PostgresServer
from tests.spec.samples import compiled

# Starting processes blocks the loop for a moment.
pytestmark = [pytest.mark.may_block_loop, pytest.mark.timeout(120)]
ALLOW = ("--outbound-allow", "127.0.0.1")


async def apply(client: Client, api: Api, said: str = "", *, queue: str = "Events") -> None:
    """Apply a spec. `None` for a queue removes its poller."""
    poller = f'poller Shop {{ url: "{api.url}/id"  queue: {queue}  every_seconds: 1  lease_seconds: 2  {said} }}'
    text = f"app Shop {{ queue Events {{}}  queue Others {{}}  {poller if queue else ''} }}"
    await client.specs.apply(msgspec.json.encode(compiled(text).spec), consent=True)


async def report(broker: BrokerProcess, what: str) -> None:
    async with asyncio.timeout(60):
        while not any(what in line for line in broker.log):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def events(client: Client, queue: str, count: int) -> Counter[str]:
    """Return the keys of the next events."""
    found: Counter[str] = Counter()
    async with asyncio.timeout(60):
        while found.total() < count:
            batch = await client.pop(queue, batch=100, partitions=100, auto_ack=True, wait=5)
            found.update(message.data["key"] for message in batch)
    return found


async def test_a_poller_begins_changes_and_ends_with_the_spec_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "the token")
    with broker_process(f"sqlite:///{tmp_path}/queue.db", *ALLOW) as broker:
        async with Api(3) as api, Client(broker.url) as client:
            api.faults.extend(["broken", "drop"])
            await apply(client, api, 'token_env: "SHOP_SECRET"')
            assert await events(client, "Events", 3) == {"1": 1, "2": 1, "3": 1}
            assert api.asked[-1].headers["authorization"] == "Bearer the token"
            await apply(client, api, queue="Others")
            api.records[4] = {"id": 4}
            assert await events(client, "Others", 1) == {"4": 1}
            assert "authorization" not in api.asked[-1].headers
            await apply(client, api, 'token_env: "SHOP_TOKEN"')
            await report(broker, "cannot run poller 'Shop': a spec may not read the environment variable SHOP_TOKEN")
            await apply(client, api)
            api.records[5] = {"id": 5}
            assert await events(client, "Events", 1) == {"5": 1}
            await apply(client, api, queue="")
            async with asyncio.timeout(60):
                while (await client.sources.get("Shop")).leased_until is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            asked = len(api.asked)
            assert broker.stop() == 0
            assert len(api.asked) == asked, "who gave the lease back asks no more"


async def test_a_poller_reaches_what_the_broker_may_and_runs_only_where_it_is_to(tmp_path: Path) -> None:
    async with Api(3) as api:
        with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
            async with Client(broker.url) as client:
                await apply(client, api)
            await report(broker, "outbound_allow")
            assert broker.stop() == 0
        with broker_process(f"sqlite:///{tmp_path}/queue.db", *ALLOW, "--no-pollers") as broker:
            assert broker.stop() == 0
        assert api.asked == []
        with broker_process(f"sqlite:///{tmp_path}/queue.db", *ALLOW) as broker:
            async with Client(broker.url) as client:
                assert len(await events(client, "Events", 3)) == 3, "a broker that starts goes on with it"
                assert broker.stop() == 0


async def test_pollers_of_a_spec_in_force_are_run_once_whatever_the_number_of_brokers(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    with broker_process(url, *ALLOW, "--workers", "2") as first:
        async with Api(30) as api, Client(first.url) as client:
            await apply(client, api)
            assert set((await events(client, "Events", 30)).values()) == {1}
            with broker_process(url, *ALLOW) as second:  # only now, or it might become the reader
                await report(second, "is being read by another poller")
                first.stop()
                api.records[31] = {"id": 31}
                async with Client(second.url) as other:
                    assert await events(other, "Events", 1) == {"31": 1}
