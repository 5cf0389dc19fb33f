"""Helpers to read complete results, so that no statement stays half stepped across a commit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

import apsw

_TOGETHER: Final = 64
_STEP: Final = 8


def rows(db: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    return db.execute(sql, values).fetchall()


def first(db: apsw.Connection, sql: str, *values: Any) -> Any:
    """Return the first row. None without one."""
    found = db.execute(sql, values).fetchall()
    return found[0] if found else None


def value(db: apsw.Connection, sql: str, *values: Any) -> Any:
    """Return the first column of the first row. None without one."""
    found = db.execute(sql, values).fetchall()
    return found[0][0] if found else None


def write_rows(db: apsw.Connection, sql: str, values: Sequence[tuple[Any, ...]]) -> None:
    """Run `sql`, which has one `values (?, ...)`, for all rows at once.

    One step per row would release the GIL each time, which costs more than the row. Statements are prepared for some
    numbers of rows, so that two statements are enough for up to 71.
    """
    start, left = 0, len(values)
    while left:
        size = min(left - left % _STEP, _TOGETHER) or left
        db.execute(_repeated(sql, size), tuple(chain.from_iterable(values[start : start + size])))
        start += size
        left -= size


@cache
def _repeated(sql: str, size: int) -> str:
    """Return the statement for `size` rows."""
    row = re.search(r"values (\([?, ]+\))", sql)
    assert row is not None, sql
    return sql[: row.start(1)] + ", ".join([row[1]] * size) + sql[row.end(1) :]
