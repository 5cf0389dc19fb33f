"""The rights of a role to call `fairlane.enqueue` and `fairlane.complete`, and the input that both refuse."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest, NotFound
from fairlane.store.postgres.staged import regular
from fairlane.wire.staged import EnqueueGrant
from tests.staged.conftest import Database

App: TypeAlias = asyncpg.Connection


@pytest.fixture
async def stranger(database: Database) -> AsyncIterator[App]:
    """A connection of the role without any grant."""
    connection = await asyncpg.connect(database.role_url)
    yield connection
    await connection.close()


async def refused(app: App, statement: str, *values: Any) -> str:
    """The error of a statement, after which nothing is staged."""
    with pytest.raises(asyncpg.PostgresError) as error:
        await app.execute(statement, *values)
    return str(error.value)


ENQUEUE = "SELECT fairlane.enqueue('orders', '1')"


async def test_a_role_without_a_grant_may_do_nothing(stranger: App) -> None:
    assert "permission denied for schema fairlane" in await refused(stranger, ENQUEUE)


async def test_a_grant_is_for_its_queue_of_its_tenant(broker: Broker, database: Database, stranger: App) -> None:
    await broker.staged.revoke(database.role)
    await broker.tenants.create("shop")
    await broker.of("shop").staged.grant(database.role, "orders")
    allowed = "SELECT fairlane.enqueue('orders', '1', tenant => 'shop')"
    await stranger.execute(allowed)
    for statement in (ENQUEUE, allowed.replace("orders", "others"), allowed.replace("shop", "unknown")):
        assert "may not enqueue into queue" in await refused(stranger, statement)
    [message] = await broker.of("shop").pop("orders", wait=60)
    assert message.data == 1
    complete = "SELECT fairlane.complete($1, $2, $3)"
    await broker.push("orders", 2)
    [foreign] = await broker.pop("orders", wait=60)
    place = str(foreign.partition_id), foreign.position
    assert "may not complete messages of queue" in await refused(stranger, complete, foreign.lease, *place)
    await stranger.execute(complete, message.lease, str(message.partition_id), message.position)


async def test_nothing_else_of_the_schema_can_be_reached(database: Database, app: App) -> None:
    await app.execute(ENQUEUE)
    for table in ("staged", "enqueue_grants", "queues", "segments", "api_keys", "tenants"):
        assert "permission denied" in await refused(app, f"SELECT * FROM fairlane.{table}")
        assert "permission denied" in await refused(app, f"DELETE FROM fairlane.{table}")
    for call in (
        "fairlane.open_staged(0, '', -1, '{}', '{}', '{}', 1, 1)",
        "fairlane.staged_by_queue('default', 1)",
        "fairlane.may_enqueue('postgres', 1, 'orders')",
        "fairlane.drop_queue(1)",
    ):
        assert "permission denied" in await refused(app, f"SELECT {call}")


async def test_names_in_the_path_of_the_caller_are_not_used(app: App, database: Database) -> None:
    """A function that runs with the rights of the owner must not call one that the caller has put in its place."""
    await database.sql(f"GRANT CREATE ON SCHEMA public TO {database.role}")
    await app.execute("CREATE FUNCTION public.length(text) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE ''mine''; END'")
    await app.execute("SET search_path = public, pg_catalog")
    await app.execute("CREATE TEMP TABLE pg_roles (rolname name, oid oid)")
    await app.execute(ENQUEUE)


async def test_the_role_that_was_set_counts(broker: Broker, database: Database) -> None:
    owner = await asyncpg.connect(database.url)
    other = f"{database.role}_other"
    await owner.execute(f"CREATE ROLE {other}")
    await owner.execute(f"GRANT USAGE ON SCHEMA fairlane TO {other}")
    await owner.execute(f"GRANT EXECUTE ON FUNCTION fairlane.enqueue TO {other}")
    await owner.execute(f"SET ROLE {other}")
    assert "may not enqueue" in await refused(owner, ENQUEUE)
    await owner.execute("RESET ROLE")
    await owner.execute(f"GRANT {database.role} TO {other}")
    await owner.execute(f"SET ROLE {other}")
    await owner.execute(ENQUEUE)
    await owner.execute(f"RESET ROLE; DROP OWNED BY {other}; DROP ROLE {other}")
    await owner.close()


async def test_a_revoked_role_has_no_rights_left(broker: Broker, database: Database, app: App) -> None:
    await broker.staged.grant(database.role, "orders")
    assert await broker.staged.grants() == [
        EnqueueGrant(role=database.role, queue=None),
        EnqueueGrant(role=database.role, queue="orders"),
    ]
    assert await broker.staged.revoke(database.role)
    await app.execute(ENQUEUE)
    assert await broker.staged.revoke(database.role, "orders")
    assert "permission denied for schema fairlane" in await refused(app, ENQUEUE)
    assert not await broker.staged.revoke(database.role)


async def test_a_grant_needs_a_role_that_is_there(broker: Broker) -> None:
    with pytest.raises(NotFound, match="the database has no role 'nobody'; create it first"):
        await broker.staged.grant("nobody")
    with pytest.raises(InvalidRequest, match="role must not be empty"):
        await broker.staged.grant("")


DEEP = "[" * 129 + "]" * 129
DEEPEST = '{"a":' * 128 + '"]}{["' + "}" * 128
MISUSES = {
    "SELECT fairlane.enqueue('', '1')": "queue must not be empty",
    "SELECT fairlane.enqueue(NULL, '1')": "queue must not be empty",
    "SELECT fairlane.enqueue(repeat('q', 256), '1')": "queue has 256 characters; at most 255 are allowed",
    "SELECT fairlane.enqueue('q', NULL)": "payload must not be NULL",
    "SELECT fairlane.enqueue('q', '{')": "invalid input syntax for type json",
    "SELECT fairlane.enqueue('q', to_json(repeat('x', 4194304)))": "payload has 4194306 bytes; at most 4194304",
    f"SELECT fairlane.enqueue('q', '{DEEP}')": "payload is nested deeper than 128 levels",
    "SELECT fairlane.enqueue('q', '1', partition => '')": "partition must not be empty",
    "SELECT fairlane.enqueue('q', '1', transaction_id => '')": "transaction_id must not be empty",
    "SELECT fairlane.enqueue('q', '1', type => repeat('t', 256))": "type has 256 characters",
    "SELECT fairlane.enqueue('q', '1', priority => 10)": "priority is 10; it must be between 0 and 9",
    "SELECT fairlane.enqueue('q', '1', max_attempts => 0)": "max_attempts is 0; it must be between 1 and 10000",
    "SELECT fairlane.enqueue('q', '1', deliver_at => 'infinity')": "deliver_at is infinity; it must be between",
    "SELECT fairlane.enqueue('q', '1', headers => '[]')": "headers must be an object of strings, not array",
    "SELECT fairlane.enqueue('q', '1', headers => '{\"a\": 1}')": 'header "a" must be a string',
    "SELECT fairlane.enqueue('q', '1', headers => '{\"\": \"\"}')": 'header "" must be a string, and its name',
    "SELECT fairlane.enqueue('q', '1', headers => json_build_object('a', repeat('x', 4096)))": "4097 characters in all",
    "SELECT fairlane.complete('', '0-1', 0)": "the lease of this message is lost",
    "SELECT fairlane.complete('1.9f0b7f4e-0000-4000-8000-000000000000', '0-1', 0)": "the lease of this message is lost",
    "SELECT fairlane.complete(NULL, NULL, NULL)": "the lease of this message is lost",
}


@pytest.mark.parametrize("statement", MISUSES)
async def test_what_is_wrong_fails_the_transaction_of_the_caller(app: App, database: Database, statement: str) -> None:
    assert MISUSES[statement] in await refused(app, statement)
    assert await database.staged() == 0


async def test_the_limits_themselves_are_allowed(app: App, broker: Broker) -> None:
    headers = json.dumps({"a" * 96: "x" * 4000})
    await app.execute("SELECT fairlane.enqueue('q', $1::json, headers => $2::json)", DEEPEST, headers)
    await app.execute("SELECT fairlane.enqueue('q', to_json(repeat('x', 4194302)))")
    sizes: list[int] = []
    while len(sizes) < 2:
        found = await broker.pop("q", wait=60)
        sizes += [len(bytes(one.raw)) for one in found]
        await broker.ack(found)
    assert sizes == [len(DEEPEST), 4194304]


async def test_an_encrypted_queue_takes_nothing_in_clear(app: App, broker: Broker, database: Database) -> None:
    await database.sql(
        "INSERT INTO fairlane.queues (tenant_id, name, namespace, task, options, created_at)"
        " VALUES (1, 'secret', '', '', '{\"encryption_enabled\": true}', now())"
    )
    statement = "SELECT fairlane.enqueue('secret', '1')"
    assert 'queue "secret" is encrypted, and this message would be stored in clear' in await refused(app, statement)
    await broker._engine.store.staged.publish_sealed(["pay.*", "card?"])
    for queue in ("pay.ments", "cards"):
        assert "is encrypted" in await refused(app, statement.replace("secret", queue))
    for queue in ("payments", "card", "xcards"):
        await app.execute(statement.replace("secret", queue))
    await broker._engine.store.staged.publish_sealed([])
    await app.execute(statement.replace("secret", "pay.ments"))


async def test_a_fifo_queue_has_one_partition(app: App, broker: Broker) -> None:
    await broker.queues.configure("line", ordering="fifo")
    statement = "SELECT fairlane.enqueue('line', '1', partition => 'p')"
    assert 'queue "line" is fifo: its only partition is "Default"' in await refused(app, statement)
    await app.execute("SELECT fairlane.enqueue('line', '1')")


async def test_an_existing_queue_that_becomes_encrypted_takes_nothing(
    app: App, broker: Broker, database: Database
) -> None:
    await broker.queues.configure("cards")
    await app.execute("SELECT fairlane.enqueue('cards', '1')")
    await broker._engine.store.staged.publish_sealed(["card?"])
    assert 'queue "cards" is encrypted' in await refused(app, "SELECT fairlane.enqueue('cards', '2')")
    assert await broker.staged.revoke(database.role)
    await broker.staged.grant(database.role, "cards")
    assert 'queue "cards" is encrypted' in await refused(app, "SELECT fairlane.enqueue('cards', '3')")


async def test_a_member_of_a_granted_role_may_enqueue_into_an_existing_queue(
    app: App, broker: Broker, database: Database
) -> None:
    await broker.queues.configure("orders")
    member = f"{database.role}_member"
    await database.sql(f"CREATE ROLE {member} LOGIN IN ROLE {database.role}")
    connection = await asyncpg.connect(database.role_url.replace(f"{database.role}@", f"{member}@"))
    await connection.execute(ENQUEUE)
    await database.sql(f"REVOKE {database.role} FROM {member}")
    assert "permission denied" in await refused(connection, ENQUEUE)
    await connection.close()
    await database.sql(f"DROP ROLE {member}")


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [("a.*", r"^a\..*$"), ("a?c", "^a.c$"), ("[!ab]-[cd]", r"^[^ab]\-[cd]$"), ("a[", r"^a\[$"), (r"\d", r"^\\d$")],
)
def test_a_pattern_of_encrypted_queues_is_a_regular_expression(pattern: str, expression: str) -> None:
    assert regular(pattern) == expression
