"""The life of a key with several broker processes: created before the first start, rotated, expired, revoked."""

from __future__ import annotations

import asyncio
import os
import subprocess
from asyncio import to_thread
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from fairlane import Client
from fairlane.cli.commands.serve import check
from fairlane.config import Settings
from fairlane.errors import Forbidden, InvalidRequest, Unauthenticated
from fairlane.model.api_key import text_of
from tests.broker_process import FAIRLANE
from tests.e2e.conftest import StartBroker, connected
from tests.http.wire import Wire
from tests.until import until

WAIT_SECONDS = 120.0
"""Wait of a poll that should end long before, in seconds."""
REVOKED_SECONDS_MAX, TRIES = 1.0, 5


async def command(*words: str, cwd: Path, key: str = "") -> tuple[int, str, str]:
    """Return exit code, output and messages of a command."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    environment |= {"FAIRLANE_KEY": key} if key else {}
    done = await to_thread(
        subprocess.run, [FAIRLANE, *words], capture_output=True, text=True, cwd=cwd, env=environment, timeout=60
    )
    return done.returncode, done.stdout.strip(), done.stderr


async def test_an_address_that_others_reach_is_refused_until_there_is_a_key(
    store_url: str, start: StartBroker, tmp_path: Path
) -> None:
    code, _, said = await command("serve", "--store", store_url, "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
    assert code == 2
    assert "fairlane key create --role admin" in said
    assert len(said.strip().splitlines()) == 1
    code, key, said = await command("key", "create", "--role", "admin", "--store", store_url, cwd=tmp_path)
    assert (code, key[:3]) == (0, "fl_")
    assert key not in said
    broker = await start(store_url, "--host", "0.0.0.0")
    url = broker.url.replace("0.0.0.0", "127.0.0.1")
    async with Client(url, attempts=1) as nobody, Client(url, token=key) as admin:
        await expect_refused(nobody)
        await admin.push("orders", 1)
        listed = await admin.keys.all()
        assert [(one.name, one.created_by) for one in listed] == [("admin", "anybody")]
        noted = await admin.audit.page()
        assert ("command line", "keys.create") in {(one.caller, one.action) for one in noted}
        assert (await admin.audit.verify()).whole
    assert key not in "".join(broker.log)


async def test_a_broker_that_requires_keys_asks_for_one_before_there_is_any(
    store_url: str, start: StartBroker, tmp_path: Path
) -> None:
    broker = await start(store_url, "--require-auth")
    push = {"items": [{"queue": "orders", "payload": 1}]}
    async with connected(broker) as wire:
        for path in ("/livez", "/readyz"):
            (await wire.get(path)).ok()
        for answer in (await wire.post("/api/v1/push", body=push), await wire.get("/metrics")):
            assert "key create --role admin" in answer.refused(401, "unauthenticated")["error"]
        (await wire.post("/hook", "unknown", body={})).refused(404)
        if store_url.startswith("sqlite"):  # which only one process can open
            await to_thread(broker.stop)
        code, key, said = await command("key", "create", "--role", "admin", "--store", store_url, cwd=tmp_path)
        assert code == 0, said
        assert "/metrics" in said, "the first key says who is asked for one from now on"
        if not broker.running:
            await to_thread(broker.start)
        header = {"authorization": f"Bearer {key}"}

        async def let_in() -> bool:
            answer = await wire.ask("POST", "/api/v1/push", body=push, headers=header)
            return answer.status == 201

        await until(let_in)
        assert "there is none yet" not in (await wire.get("/metrics")).refused(401)["error"]


async def test_a_broker_that_requires_keys_lets_nobody_in_while_its_store_was_never_there(
    start: StartBroker,
) -> None:
    broker = await start("postgresql://nobody@127.0.0.1:1/nothing", "--require-auth")
    push = {"items": [{"queue": "orders", "payload": 1}]}
    async with connected(broker) as wire:
        (await wire.get("/livez")).ok()
        assert (await wire.get("/readyz")).status == 503
        for path in ("/api/v1/pop/queue/orders", "/api/v1/whoami", "/metrics"):
            (await wire.get(path)).refused(401, "unauthenticated")
        (await wire.post("/api/v1/push", body=push)).refused(401, "unauthenticated")
        made = {"authorization": f"Bearer {text_of(os.urandom(32))}"}
        answer = await wire.ask("POST", "/api/v1/push", body=push, headers=made)
        answer.refused(503, "store_unavailable")
        assert answer.headers["Retry-After"]


async def test_a_broker_behind_a_proxy_asks_for_a_key_before_there_is_any(start: StartBroker) -> None:
    broker = await start("sqlite:///:memory:", "--trusted-proxies", "127.0.0.1", "--allowed-hosts", "queue.example.com")
    async with connected(broker) as wire:
        forwarded = {"x-forwarded-for": "10.1.2.3", "host": "queue.example.com"}
        first = {"name": "first", "role": "admin"}
        (await wire.ask("POST", "/api/v1/keys", body=first, headers=forwarded)).refused(401, "unauthenticated")
        (await wire.get("/api/v1/whoami")).refused(401, "unauthenticated")


def test_a_broker_cannot_require_keys_and_ask_nobody() -> None:
    with pytest.raises(InvalidRequest, match="require_auth"):
        check(Settings(require_auth=True, insecure_no_auth=True))


async def expect_refused(client: Client) -> None:
    with pytest.raises(Unauthenticated):
        await client.queues.all()


async def test_a_key_that_is_revoked_ends_the_polls_of_every_broker(
    store_url: str, start: StartBroker, tmp_path: Path
) -> None:
    count = 1 if store_url.startswith("sqlite") else 2  # a SQLite file has one broker
    _, root, _ = await command("key", "create", "--role", "admin", "--store", store_url, cwd=tmp_path)
    brokers = [await start(store_url) for _ in range(count)]
    async with AsyncExitStack() as stack:

        async def client(url: str, key: str) -> Client:
            return await stack.enter_async_context(Client(url, token=key, attempts=1))

        admin = await client(brokers[0].url, root)
        made = await admin.keys.create("worker", role="read-write")
        users = [await client(broker.url, made.key) for broker in brokers]
        for user in users:  # a broker knows a new key within a second
            await until(partial(known, user))
        polls = [asyncio.create_task(user.pop("empty", wait=WAIT_SECONDS)) for user in users]
        for broker in brokers:
            async with connected(broker) as wire:
                await until(partial(parked, wire, root))
        await admin.keys.revoke("worker")
        ended = await asyncio.wait_for(asyncio.gather(*polls, return_exceptions=True), WAIT_SECONDS / 2)
        assert {type(one) for one in ended} == {Unauthenticated}
        for user in users:
            await expect_refused(user)
        await admin.queues.all()


async def test_a_revoked_key_is_refused_by_every_broker_within_a_second(
    database_url: str, start: StartBroker, tmp_path: Path
) -> None:
    """The key is revoked at another broker.

    A busy machine only adds to the time, so one fast attempt of several is enough.
    """
    _, root, _ = await command("key", "create", "--role", "admin", "--store", database_url, cwd=tmp_path)
    told, other = await start(database_url), await start(database_url)
    took: list[float] = []
    async with Client(told.url, token=root) as admin:
        while not took or (min(took) >= REVOKED_SECONDS_MAX and len(took) < TRIES):
            made = await admin.keys.create(f"worker {len(took)}", role="read-write")
            async with Client(other.url, token=made.key, attempts=1) as user:
                await until(partial(known, user))
                await admin.keys.revoke(made.id)
                began = asyncio.get_running_loop().time()
                await until(partial(unknown, user))
                took.append(asyncio.get_running_loop().time() - began)
    assert min(took) < REVOKED_SECONDS_MAX, took


async def unknown(user: Client) -> bool:
    return not await known(user)


async def known(user: Client) -> bool:
    try:
        return (await user.keys.whoami()).name.startswith("key:")
    except Unauthenticated:
        return False


async def parked(wire: Wire, key: str) -> bool:
    """Return True while a poll of the broker waits."""
    answer = await wire.get("/api/v1/status/engine", headers={"authorization": f"Bearer {key}"})
    return bool(answer.ok()["queue"]["parked"])


async def test_a_rotated_key_goes_on_in_both_forms_and_then_in_one(
    store_url: str, start: StartBroker, tmp_path: Path
) -> None:
    _, root, _ = await command("key", "create", "--role", "admin", "--store", store_url, cwd=tmp_path)
    broker = await start(store_url)

    async def key(*words: str) -> str:
        code, printed, said = await command("-s", broker.url, "key", *words, cwd=tmp_path, key=root)
        assert code == 0, said
        return printed

    old = await key("create", "app", "--role", "read-write")
    async with Client(broker.url, token=old) as before:
        await before.push("orders", 1)
        new = await key("rotate", "app", "--grace", "1h")
        async with Client(broker.url, token=new) as after:
            await before.push("orders", 2)
            await after.push("orders", 3)
            _, newest, _ = await command(
                "-s", broker.url, "key", "rotate", "app", "--grace", "0s", cwd=tmp_path, key=root
            )
            await expect_refused(before)
            await expect_refused(after)
    async with Client(broker.url, token=newest) as last:
        await last.push("orders", 4)
        with pytest.raises(Forbidden, match="scope keys"):
            await last.keys.all()
