"""Pages of lists that fit into memory: searched, sorted and cut here, so that a page of a list of thousands is small.
Lists that grow with messages are paged by the store."""

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
    """The rows of a page, and how many there are on all pages. `text` is searched; by the keys of `up` rows come
    upwards and by those of `down` downwards, unless the query says otherwise."""
    search = query.search.casefold()
    found = [one for one in rows if search in text(one).casefold()] if search else list(rows)
    reverse = query.order == "desc" if query.order else query.sort in down
    found.sort(key={**up, **down}[query.sort], reverse=reverse)
    return found[query.offset : None if query.limit is None else query.offset + query.limit], len(found)
