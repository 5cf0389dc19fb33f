"""Staged messages as operators see them, and the command that grants the right to enqueue."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from fairlane import Client
from fairlane.broker import queue_findings
from fairlane.broker.broker import Broker
from fairlane.cli import main
from fairlane.errors import Forbidden
from fairlane.http.metrics.store import StoreMetrics
from tests.staged.conftest import Database, serving
from tests.until import until


async def test_messages_that_wait_are_listed_measured_and_found(
    database: Database, broker: Broker, app: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_findings, "STUCK_SECONDS", 0)
    assert await broker.staged.queues() == []
    await broker.queues.configure("small", max_size=1)
    await broker.push("small", 0)
    for n in range(3):
        await app.execute("SELECT fairlane.enqueue('small', to_json($1::int), partition => 'p' || $1)", n)
    [[oldest]] = await database.sql(
        "SELECT (extract(epoch FROM min(created_at)) * 1000000)::bigint FROM fairlane.staged"
    )
    [found] = await broker.staged.queues()
    assert (found.queue, found.messages, int(found.oldest_at)) == ("small", 3, oldest)
    [finding] = [one for one in await broker.findings.all() if one.kind == "staged_waiting"]
    assert (finding.severity, finding.queue, finding.count) == ("warning", "small", 3)
    assert finding.sentence.startswith("3 enqueued messages wait to be moved to 'small', the oldest for ")
    text = (await StoreMetrics(broker).text() or b"").decode()
    assert 'fairlane_staged_messages{queue="small"} 3.0' in text
    assert 'fairlane_staged_oldest_age_seconds{queue="small"} ' in text


async def test_the_command_grants_lists_and_revokes(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(database) as served:

        async def run(*words: str) -> tuple[int, str]:
            code = await asyncio.to_thread(main.run, ["grant-enqueue", *words, "--server", served.url])
            said = capsys.readouterr()
            return code, said.out + said.err

        role = database.role
        assert await run() == (0, "No role may enqueue.\n")
        assert await run(role, "--queue", "orders") == (0, f"Role {role} may enqueue into queue orders.\n")
        code, listed = await run()
        assert (code, listed.splitlines()[-1].split()) == (0, [role, "orders"])
        app = await asyncpg.connect(database.role_url)
        await app.execute("SELECT fairlane.enqueue('orders', '1')")
        await app.close()
        code, refused = await run("nobody")
        assert (code, "the database has no role 'nobody'; create it first" in refused) == (2, True)
        code, refused = await run(role, "--queue", "orders", "--revoke")
        assert (code, refused) == (0, f"Role {role} may no longer enqueue into queue orders.\n")
        assert (await run(role, "--revoke"))[0] == 1
        async with Client(served.url) as client:
            await client.queues.configure("small", max_size=1)
            await client.staged.grant(role)
            assert [(one.role, one.queue) for one in await client.staged.grants()] == [(role, None)]
            app = await asyncpg.connect(database.role_url)
            await app.execute("SELECT fairlane.enqueue('small', to_json(n)) FROM generate_series(1, 3) n")
            await app.close()

            async def one_is_left() -> bool:
                return [one.messages for one in await client.staged.queues()] == [2]

            await until(one_is_left)
        assert await asyncio.to_thread(main.run, ["status", "--server", served.url]) == 0
        assert "staged    2 messages, the oldest since " in capsys.readouterr().out


async def test_a_key_grants_a_role_no_more_than_it_may_do_itself(database: Database) -> None:
    async with serving(database) as served, Client(served.url) as operator:
        key = await operator.keys.create("issuer", scopes=["keys", "push:orders", "create:orders", "pop:orders"])
        async with Client(served.url, token=key.key) as issuer:
            await issuer.staged.grant(database.role, "orders")
            for queue in ("invoices", None):
                with pytest.raises(Forbidden, match="needs the scope push"):
                    await issuer.staged.grant(database.role, queue)
            assert [one.queue for one in await issuer.staged.grants()] == ["orders"]
