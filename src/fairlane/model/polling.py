"""Polling: how an API is read page by page, and what becomes of its records."""

from __future__ import annotations

from typing import Literal

import msgspec

Paging = Literal["id", "token", "link"]


class Polling(msgspec.Struct, frozen=True, kw_only=True):
    """A collection behind a URL. Paths lead through objects, by names with dots between; an empty one is the answer
    itself."""

    url: str
    queue: str
    paging: Paging = "id"
    """By the id of the last record, by a token that the answer carries, or by the Link header of the answer."""
    items: str = ""
    """Path of the list of records."""
    id: str = "id"
    """Path of a record's id, inside the record."""
    next: str = "next"
    """Path of the token of the next page."""
    cursor_param: str = "after"
    """The query parameter that takes an id or a token."""
    size_param: str = "page_size"
    """The query parameter that takes the size of a page; empty: it is not asked for."""
    page_size: int = 100
    total: str | None = None
    """Path of the number of all records, if the API tells it."""
    ignore: tuple[str, ...] = ()
    """Fields of a record that make no difference when they change."""
    type: str | None = None
    """Messages have the type `type.created` and so on; without one `created` and so on."""
    partition: str | None = None
    """Of all messages; None: each record has its own, named by its id."""
    may_be_empty: bool = False
    """Believe a sweep that finds no record at all: everything is gone."""
    lease_seconds: int = 60
