"""A source to poll: its URL, its kind of paging, and the queue of its records."""

from __future__ import annotations

from typing import get_args
from urllib.parse import urlsplit

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, SECONDS_MAX
from fairlane.model.names import check_count, check_name
from fairlane.model.polling import Paging, Polling
from fairlane.wire.sources import RECORDS_MAX


class Source(Polling, frozen=True, kw_only=True):
    """A collection of records at a URL, with the interval at which it is read."""

    name: str
    """Name under which the broker stores the cursor."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers of every request, for example Authorization."""
    every_seconds: float = 300.0
    sweep_seconds: float | None = 3600.0
    """Seconds between sweeps, which find changed and deleted records. None for no sweeps."""
    allow_private: bool = False
    """True if the URL may resolve to addresses of private networks."""

    def check(self) -> Source:
        check_name("name", self.name)
        check_name("queue", self.queue)
        check_name("cursor_param", self.cursor_param)
        check_name("id", self.id)
        check_count("page_size", self.page_size, least=1, most=RECORDS_MAX)
        check_count("lease_seconds", self.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        if self.paging not in get_args(Paging):
            raise InvalidRequest(f"paging is {self.paging!r:.40}; it must be id, token or link")
        for what, seconds in (("every_seconds", self.every_seconds), ("sweep_seconds", self.sweep_seconds)):
            if seconds is not None and not 0 < seconds <= SECONDS_MAX:
                raise InvalidRequest(f"{what} is {seconds}; it must be more than 0 and at most {SECONDS_MAX}")
        origin(self.url)
        return self


def origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an HTTP URL. Raises InvalidRequest if it is not one."""
    try:
        parts = urlsplit(url)
        found = parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        found = "", "", None
    if found[0] not in ("http", "https") or not found[1]:
        raise InvalidRequest(f"{url!r:.200} is not the URL of an API; use https://host/path")
    return found
