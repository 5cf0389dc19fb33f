"""Citus, which places and moves cells as schemas of one cluster.

Each cell is a distributed schema: all its tables are on one node, its owner. Every node can run its statements, but the
owner runs them without a hop.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from fairlane.errors import NotFound, StoreUnavailable
from fairlane.store.postgres.citus_sql import VERBS
from fairlane.store.postgres.connection import CONNECT_SECONDS, Database, connect

INSTALLED = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
_SCHEMA = "(SELECT x.relnamespace::regnamespace FROM pg_class x WHERE x.oid = 'fairlane.queues'::regclass)"
_DISTRIBUTED = f"SELECT EXISTS (SELECT FROM citus_schemas s WHERE s.schema_name = {_SCHEMA})"  # noqa: S608  # ours
_OWNERS = """
SELECT x.oid = to_regclass('fairlane.queues'), x.relnamespace::regnamespace::text, n.nodename, n.nodeport
FROM pg_dist_shard s JOIN pg_class x ON x.oid = s.logicalrelid AND x.relname = 'queues'
JOIN pg_dist_placement p ON p.shardid = s.shardid
JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
"""
_NODES = """
SELECT n.nodename, n.nodeport FROM pg_dist_node n WHERE n.noderole = 'primary' AND n.shouldhaveshards ORDER BY 1, 2
"""
_SIZE = f"""
SELECT coalesce(sum(s.shard_size), 0)::bigint FROM citus_shards s JOIN pg_class c ON c.oid = s.table_name
WHERE c.relnamespace = {_SCHEMA}
"""  # noqa: S608  # ours
_DELEGATE = f"""
SELECT create_distributed_function(p.oid::regprocedure, colocate_with => 'fairlane.queues')
FROM pg_proc p WHERE p.pronamespace = {_SCHEMA} AND p.proname = ANY ($1)
"""  # noqa: S608  # ours
_IDENTITY = "SELECT i.home, i.cell FROM fairlane.identity i"


async def is_citus(connection: asyncpg.Connection[Any]) -> bool:
    return bool(await connection.fetchval(INSTALLED))


async def is_distributed(connection: asyncpg.Connection[Any]) -> bool:
    """Return True if Citus distributes the schema of the connection."""
    return await is_citus(connection) and bool(await connection.fetchval(_DISTRIBUTED))


async def distribute(connection: asyncpg.Connection[Any]) -> None:
    """Have Citus place the schema of the connection on one of its nodes."""
    await connection.execute(f"SELECT citus_schema_distribute({_SCHEMA})")


async def delegate(connection: asyncpg.Connection[Any]) -> None:
    """Delegate the verbs of messages from other nodes to the owner of the schema, as one call each."""
    await connection.execute(_DELEGATE, VERBS)


async def owners(database: Database) -> dict[str, str]:
    """Return the address of the owner of each distributed schema. Empty if the server is not Citus."""
    if not (await database.read(INSTALLED))[0][0]:
        return {}
    return {schema: f"{host}:{port}" for _, schema, host, port in await database.read(_OWNERS)}


async def schema_bytes(database: Database) -> int:
    """Return the size of a distributed schema on its owner."""
    return int((await database.read(_SIZE))[0][0])


async def move(url: str, schema: str, node: str) -> None:
    """Move a schema to a node, by its name or its address, while it is used. Raises NotFound."""
    connection = await connect(url, schema)
    try:
        nodes = [(host, port) for host, port in await connection.fetch(_NODES)]
        found = [(host, port) for host, port in nodes if node in (host, f"{host}:{port}")]
        if len(found) != 1:
            known = ", ".join(f"{host}:{port}" for host, port in nodes)
            raise NotFound(f"there is no node {node!r:.80}; use one of {known}")
        await connection.execute(f"SELECT citus_schema_move({_SCHEMA}, $1::text, $2::int)", *found[0])
    except asyncpg.PostgresError as error:
        raise StoreUnavailable(f"Citus did not move the cell: {error}") from error
    finally:
        await connection.close(timeout=CONNECT_SECONDS)


async def rebalance(url: str) -> bool:
    """Spread the schemas over the nodes in the background. Returns False if nothing is to be moved."""
    connection = await connect(url)
    try:
        return await connection.fetchval("SELECT citus_rebalance_start()") is not None
    except asyncpg.PostgresError as error:
        raise StoreUnavailable(f"Citus did not move cells: {error}") from error
    finally:
        await connection.close(timeout=CONNECT_SECONDS)


async def owner_url(connection: asyncpg.Connection[Any], url: str) -> str:
    """Return the URL of the owner of the connection's schema, for the user and database of `url`."""
    [(host, port)] = [(host, port) for own, _, host, port in await connection.fetch(_OWNERS) if own]
    parts = urlsplit(url)
    credentials, at, _ = parts.netloc.rpartition("@")
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name not in ("host", "port")])
    address = f"[{host}]" if ":" in host else host
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}{address}:{port}", query=query))


async def nearest_url(url: str, schema: str) -> str:
    """Return the URL of the owner of a schema, or `url` if the owner cannot be reached at its address."""
    connection = await connect(url, schema)
    try:
        known = await connection.fetchrow(_IDENTITY)
        node = await owner_url(connection, url)
    finally:
        await connection.close(timeout=CONNECT_SECONDS)
    try:
        connection = await connect(node, schema)
    except StoreUnavailable:
        return url
    try:
        # The address may lead to another server from here.
        return node if known is not None and await connection.fetchrow(_IDENTITY) == known else url
    except asyncpg.PostgresError:
        return url
    finally:
        await connection.close(timeout=CONNECT_SECONDS)
