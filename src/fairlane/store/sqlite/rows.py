"""Rows as the verbs read them: whole answers, so that no statement stays half stepped behind a commit."""

from __future__ import annotations

from typing import Any

import apsw


def rows(db: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    return db.execute(sql, values).fetchall()


def first(db: apsw.Connection, sql: str, *values: Any) -> Any:
    """The first row, None without one."""
    found = db.execute(sql, values).fetchall()
    return found[0] if found else None


def value(db: apsw.Connection, sql: str, *values: Any) -> Any:
    """The first column of the first row, None without one."""
    found = db.execute(sql, values).fetchall()
    return found[0][0] if found else None
