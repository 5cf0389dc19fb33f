"""The servers of a client: prefers the same server for the same key, and fails over to others."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from fairlane.errors import InvalidRequest

AILING_SECONDS = 5.0  # skip a broker that failed for this long, if there is another
_KEYS_MAX = 1024


class Servers:
    """Brokers of one store, by their URLs.

    Each key has its own order over the brokers (rendezvous hashing). Clients that pop the same queue for the same group
    use the same broker, where a push wakes a waiting pop at once; different keys spread over all brokers. When a broker
    leaves, only its keys move.
    """

    def __init__(self, urls: str | Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        given = [urls] if isinstance(urls, str) else list(urls)
        self.urls = list(dict.fromkeys(_checked(one) for some in given for one in _split(some)))
        if not self.urls:
            raise InvalidRequest("a client needs the URL of at least one server")
        self._clock = clock
        self._ailing_until: dict[str, float] = {}
        self._orders: dict[str, list[str]] = {}

    def order(self, key: str) -> list[str]:
        """Return the servers to try, in order. Skips servers that failed recently, unless all did."""
        if len(self.urls) == 1:
            return self.urls
        order = self._orders.get(key)
        if order is None:
            if len(self._orders) >= _KEYS_MAX:
                self._orders.clear()
            order = self._orders[key] = sorted(self.urls, key=lambda url: _weight(url, key))
        if not self._ailing_until:
            return order
        now = self._clock()
        return [url for url in order if self._ailing_until.get(url, 0.0) <= now] or order

    def mark_failed(self, url: str) -> None:
        self._ailing_until[url] = self._clock() + AILING_SECONDS

    def mark_healthy(self, url: str) -> None:
        if self._ailing_until:
            self._ailing_until.pop(url, None)


def _weight(url: str, key: str) -> bytes:
    return hashlib.blake2b(f"{url}\0{key}".encode(), digest_size=8).digest()


def _split(urls: object) -> list[object]:
    """Split a text at its commas, but only where a URL follows: other commas are part of a path."""
    return [one.strip() for one in re.split(r",(?=\s*(?:\w+:/|$))", urls)] if isinstance(urls, str) else [urls]


def _checked(url: object) -> str:
    if not isinstance(url, str):
        raise InvalidRequest(f"a server must be a URL, not {type(url).__name__}")
    try:
        parts = urlsplit(url)
        named = (parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/")) or (
            parts.scheme in ("http", "https")
            and (parts.hostname or "").encode("idna")
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        named = False
    if not named:
        raise InvalidRequest(f"{url!r:.80} is not the URL of a server; use http://host:port or unix:/path")
    return url.rstrip("/")
