"""`fairlane poll` and `fairlane source` on the command line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from fairlane.cli.commands.poll import _header, source_in_spec
from fairlane.errors import InvalidRequest
from fairlane.poller import Source
from tests.broker_process import FAIRLANE
from tests.poller.conftest import Polling


async def run(polling: Polling, *arguments: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    return await asyncio.create_subprocess_exec(
        *(FAIRLANE, *arguments, "--server", polling.test.url),
        env=environment | {"FAIRLANE_POLL_TOKEN": "secret"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def test_a_source_is_polled_until_a_signal_listed_and_forgotten(polling: Polling) -> None:
    url = f"{polling.api.url}/id?kind=order"
    process = await run(polling, "poll", url, "-q", "events", "--type", "order", "-H", "X-Shop: 7", "--allow-private")
    async with asyncio.timeout(30):
        while len(await polling.events()) < 35:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        process.terminate()
        assert await process.wait() == 0
    asked = polling.api.asked[-1]
    assert (asked.headers["authorization"], asked.headers["x-shop"]) == ("Bearer secret", "7")
    assert (asked.query["kind"], asked.query["page_size"]) == ("order", "100")
    assert {message.type for message in await polling.test.messages("events")} == {"order.created"}
    listing = await run(polling, "source", "list", "--json")
    [source] = json.loads((await listing.communicate())[0])
    assert (source["name"], source["records"], source["cursor"]) == (f"{polling.api.url}/id", 35, "35")
    assert source["leasedUntil"] is None, "who stops gives its lease back"


async def test_a_sweep_that_was_asked_for_and_not_done_is_no_success(polling: Polling) -> None:
    arguments = ("poll", f"{polling.api.url}/id", "-q", "events", "--allow-private", "--once")
    assert await (await run(polling, *arguments)).wait() == 0
    polling.api.records.clear()
    process = await run(polling, *arguments, "--sweep")
    _, said = await process.communicate()
    assert process.returncode == 75
    assert b"--may-be-empty" in said
    assert await (await run(polling, *arguments, "--sweep", "--may-be-empty")).wait() == 0


def test_what_is_no_header_is_refused() -> None:
    assert _header("Name:  value: x ") == ("Name", "value: x")
    with pytest.raises(InvalidRequest, match="not a header"):
        _header("Name")


def test_a_poller_of_a_spec_is_all_that_the_spec_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "shop.fairlane"
    said = 'url: "https://api.example.com/orders" queue: Orders sweep_seconds: 0 ignore: "etag" token_env: "SHOP_TOKEN"'
    file.write_text(f"app Shop {{ queue Orders {{}}  poller Orders {{ {said} }} }}", encoding="utf-8")
    with pytest.raises(InvalidRequest, match="SHOP_TOKEN is not set"):
        source_in_spec(str(file), "Orders", allow_private=False)
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    with pytest.raises(InvalidRequest, match="did you mean `Orders`"):
        source_in_spec(str(file), "Order", allow_private=False)
    assert source_in_spec(str(file), "Orders", allow_private=True) == Source(
        name="Orders",
        url="https://api.example.com/orders",
        queue="Orders",
        ignore=("etag",),
        headers={"Authorization": "Bearer secret"},
        sweep_seconds=None,
        allow_private=True,
    )
