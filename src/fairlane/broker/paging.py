"""Pages of lists that fit into memory: searched, sorted and cut here. The store pages lists that grow with messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fairlane.wire.base import ListQuery

T = TypeVar("T")
Key = Callable[[T], Any]


def page_of(
    rows: Iterable[T],
    query: ListQuery,
    *,
    text: Callable[[T], str],
    up: Mapping[str, Key[T]],
    down: Mapping[str, Key[T]],
) -> tuple[list[T], int]:
    """Return the rows of a page, and the total number of rows.

    `text` returns the searched text. Rows are sorted ascending by keys in `up` and descending by keys in `down`, unless
    the query says otherwise.
    """
    search = query.search.casefold()
    found = [one for one in rows if search in text(one).casefold()] if search else list(rows)
    reverse = query.order == "desc" if query.order else query.sort in down
    found.sort(key={**up, **down}[query.sort], reverse=reverse)
    return found[query.offset : None if query.limit is None else query.offset + query.limit], len(found)
