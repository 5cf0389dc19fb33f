"""The schema of a database, read from its system catalogue without the order of columns, to compare two databases."""

from __future__ import annotations

import re
from typing import Any

import apsw

_POSTGRES = {
    "tables": """
        SELECT c.relname, c.relkind::text, coalesce(array(SELECT unnest(c.reloptions) ORDER BY 1), '{}')
        FROM pg_class c WHERE c.relnamespace = 'fairlane'::regnamespace AND c.relkind IN ('r', 'S', 'v') ORDER BY 1
    """,
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
               a.attgenerated::text, a.attstorage::text, a.attcompression::text, l.collname,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'fairlane'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY 1, 2
    """,
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'fairlane' ORDER BY 1",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'fairlane'::regnamespace ORDER BY 1, 2
    """,
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'fairlane' ORDER BY 1",
    "functions": """
        SELECT p.oid::regprocedure::text, CASE WHEN p.prokind = 'f' THEN pg_get_functiondef(p.oid) END FROM pg_proc p
        WHERE p.pronamespace = 'fairlane'::regnamespace ORDER BY 1
    """,
}


async def postgres_schema(connection: Any) -> dict[str, list[tuple[Any, ...]]]:
    return {part: [tuple(row) for row in await connection.fetch(sql)] for part, sql in _POSTGRES.items()}


def sqlite_schema(db: apsw.Connection) -> dict[str, list[tuple[Any, ...]]]:
    tables = list(db.execute("select name, wr, strict from pragma_table_list where schema = 'main' order by 1"))
    columns, indexes = [], []
    for table, _, _ in tables:
        columns += [
            (table, name, *rest)
            for name, *rest in db.execute(
                'select name, type, "notnull", dflt_value, hidden from pragma_table_xinfo(?) order by 1', (table,)
            )
        ]
        for name, unique, origin, partial in db.execute(
            'select name, "unique", origin, partial from pragma_index_list(?) order by 1', (table,)
        ):
            keys = list(db.execute("select name, desc, coll from pragma_index_xinfo(?) where key", (name,)))
            indexes.append((table, name if origin == "c" else "", unique, origin, partial, keys))
    primary = [
        (table, list(db.execute("select name, pk from pragma_table_info(?) where pk order by pk", (table,))))
        for table, _, _ in tables
    ]
    texts = [
        (name, re.sub(r"\s+", " ", re.sub(r"--.*", "", sql)))
        for name, sql in db.execute("select name, sql from sqlite_schema where type in ('index', 'view') and sql <> ''")
    ]
    counted = [name for (name,) in db.execute("select name from sqlite_schema where sql like '%autoincrement%'")]
    return {
        "tables": tables,
        "columns": columns,
        "indexes": sorted(indexes, key=str),
        "keys": primary,
        "texts": sorted(texts),
        "autoincrement": [tuple(sorted(counted))],
    }
