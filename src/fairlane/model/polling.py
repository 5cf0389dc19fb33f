"""Options of polling: how to page through an API, and how records become messages."""

from __future__ import annotations

from typing import Literal

import msgspec

Paging = Literal["id", "token", "link"]


class Polling(msgspec.Struct, frozen=True, kw_only=True):
    """A collection of records at a URL.

    A path leads through objects, by names separated by dots. An empty path is the response itself.
    """

    url: str
    queue: str
    paging: Paging = "id"
    """Kind of paging: by the id of the last record, by a token in the response, or by the Link header."""
    items: str = ""
    """Path of the list of records."""
    id: str = "id"
    """Path of a record's id, inside the record."""
    next: str = "next"
    """Path of the token of the next page."""
    cursor_param: str = "after"
    """Query parameter for an id or a token."""
    size_param: str = "page_size"
    """Query parameter for the page size. Empty to send none."""
    page_size: int = 100
    total: str | None = None
    """Path of the total number of records, if the API reports it."""
    ignore: tuple[str, ...] = ()
    """Fields of a record whose changes are ignored."""
    type: str | None = None
    """Prefix of message types, as in `type.created`. None for plain `created` and so on."""
    partition: str | None = None
    """Partition of all messages. None to give each record its own, named by its id."""
    may_be_empty: bool = False
    """True to believe a sweep that finds no records, and report all as deleted."""
    lease_seconds: int = 60
