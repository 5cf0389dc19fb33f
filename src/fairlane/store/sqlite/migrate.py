"""Migration of the schema to the version of this code: forward only, in one transaction."""

from __future__ import annotations

import re
from typing import Final

import apsw

from fairlane.errors import StoreUnsafe
from fairlane.store import schema
from fairlane.store.schema import Applied
from fairlane.store.sqlite import rows
from fairlane.store.statements import read

_PACKAGE: Final = "fairlane.store.sqlite"
_APPLIED: Final = (
    "insert into migrations (version, name, hash, needs, applied_at)"
    " values (?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
)


def migrate(db: apsw.Connection) -> None:
    """Apply missing migrations. Raises StoreUnsafe if the schema cannot be upgraded by this code."""
    known = schema.load(_PACKAGE)
    db.execute("begin immediate")
    try:
        tables = {name for (name,) in rows.rows(db, "select name from sqlite_schema where type = 'table'")}
        if tables and "migrations" not in tables:
            raise StoreUnsafe(f"{db.filename} is the database of another program")
        if not tables:
            db.execute(known.text)
            db.execute(_APPLIED, (known.version, "schema", known.hash, known.needs))
        applied = _applied(db)
        for migration in known.missing(applied, db.filename):
            db.execute(migration.text)
            db.execute(_APPLIED, (migration.version, migration.name, None, migration.needs))
        if applied[-1].version <= known.version:
            _install_views(db)
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def _applied(db: apsw.Connection) -> list[Applied]:
    columns = {name for (name,) in rows.rows(db, "select name from pragma_table_info('migrations')")}
    # The table of an unreleased version may lack columns.
    named = ", ".join(name if name in columns else "null" for name in Applied._fields)
    return [Applied(*row) for row in rows.rows(db, f"select {named} from migrations order by version")]  # noqa: S608


def _install_views(db: apsw.Connection) -> None:
    """Recreate views whose text has changed."""
    installed = dict(rows.rows(db, "select name, sql from sqlite_schema where type = 'view'"))
    for text in re.findall(r"^create view .*?;$", read(_PACKAGE, "views.sql"), re.MULTILINE | re.DOTALL):
        name = text.split()[2]
        if installed.get(name, "").lower() != text.removesuffix(";").lower():
            db.execute(f"drop view if exists {name}")
            db.execute(text)
