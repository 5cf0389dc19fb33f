"""The log of a broker during an outage of the store: one line per event, no payload, no secret."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator

import aiohttp
import pytest

from fairlane import Client
from fairlane.errors import FairlaneError
from tests.broker_process import broker_process
from tests.conftest import FreshDatabase
from tests.faults.outages import crashed
from tests.http.test_specs import document
from tests.postgres import PostgresServer, running_server
from tests.until import until

MARKER = "marker-payload-5d1f"
SECRET = "marker-secret-of-more-than-24-bytes-9a7c"
SPEC = """
queue In { message_type { payload: json  headers: map<string, string>  source_ip: string  received_at: time } }
queue Typed { message_type { id: int } }
webhook Alert { queue: In  verify: github { secret_env: "HOOK_SECRET" } }
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server for this test alone, because the test stops it."""
    with running_server(18) as server:
        yield server


@pytest.mark.may_block_loop  # it starts a broker
async def test_an_outage_is_told_in_a_few_lines_without_payloads_and_secrets(
    server: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    url = await fresh_database(server)
    with broker_process(url, "--log-format", "json") as broker:
        async with Client(broker.url, attempts=1, token=SECRET) as client, aiohttp.ClientSession() as session:
            spec = json.dumps({"spec": document("A", SPEC), "consent": True})
            async with session.post(f"{broker.url}/api/v1/spec/apply", data=spec, headers=JSON) as answer:
                assert answer.status == 200, await answer.text()
            await client.push("orders", {"card": MARKER})
            busy = [asyncio.create_task(_ask(client, session, broker.url)) for _ in range(8)]
            async with crashed(server):
                await until(lambda: "store unavailable" in "".join(broker.log))
                await asyncio.gather(*[_fail(client, session, broker.url) for _ in range(20)])
            await until(lambda: "store available again" in "".join(broker.log))
            for task in busy:
                task.cancel()
            await asyncio.wait(busy)
    log = "".join(broker.log)
    assert "Traceback" not in log
    assert MARKER not in log
    assert SECRET not in log
    lines = [json.loads(line) for line in broker.log[1:] if line.startswith("{")]
    assert len(lines) >= len(broker.log) - 1, "each is JSON"
    loud = Counter(line["message"] for line in lines if line["level"] in ("warning", "error"))
    assert loud
    assert max(loud.values()) <= 2, "and once more with the count of those that were left out"
    assert sum(loud.values()) < 40


JSON = {"Content-Type": "application/json"}


async def _ask(client: Client, session: aiohttp.ClientSession, url: str) -> None:
    while True:
        await _fail(client, session, url)
        await asyncio.sleep(0.01)


async def _fail(client: Client, session: aiohttp.ClientSession, url: str) -> None:
    """Send requests of all kinds, most of which fail, with the marker in them."""
    wrong = json.dumps({"items": [{"queue": "Typed", "payload": {"id": MARKER}}]})
    asked: list[tuple[str, str, str]] = [
        ("POST", "/api/v1/push", wrong),
        ("POST", "/hook/Alert", json.dumps({"x": MARKER})),
        ("GET", "/api/v1/messages", ""),
    ]
    with contextlib.suppress(FairlaneError):
        await client.push("orders", {"card": MARKER})
    with contextlib.suppress(FairlaneError):
        await client.pop("orders")
    with contextlib.suppress(FairlaneError):
        await client.queues.all()
    for method, path, body in asked:
        headers = {**JSON, "Authorization": f"Bearer {SECRET}", "X-Hub-Signature-256": f"sha256={SECRET}"}
        async with session.request(method, url + path, data=body or None, headers=headers if body else {}) as answer:
            await answer.read()
