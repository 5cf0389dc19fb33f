"""Limits per client address: connections, requests and bytes in flight. Also finds the client behind a proxy."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

from fairlane.errors import InvalidRequest
from fairlane.http.server.message import Limits

_LOCAL = ("", "127.0.0.1", "::1")
"""Peers without a limit: all local programs, and unnamed local proxies, share these addresses."""
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


_PRIVATE = ipaddress.ip_network("fc00::/7")


@lru_cache(maxsize=1000)
def network_of(peer: str) -> str:
    """Return the key for the limits of a client: its IPv4 address, or the /64 network of its IPv6 address.

    One machine usually controls all 2^64 addresses of a public /64. A private /64 is shared by many machines, so its
    addresses count separately.
    """
    address = _address(peer)
    if address is None or address.version == 4:
        return peer if address is None else str(address)
    if address.is_loopback or address.is_link_local or address in _PRIVATE:
        return peer
    return str(ipaddress.ip_network((address, 64), strict=False))


class PeerLimit:
    """The usage and the limits of one client address."""

    __slots__ = (
        "address",
        "bytes_max",
        "connections",
        "connections_max",
        "proxied",
        "requests",
        "requests_max",
        "used",
    )

    def __init__(
        self, address: str, connections_max: int, requests_max: int, bytes_max: int, *, proxied: bool = False
    ) -> None:
        self.address = address
        self.proxied = proxied
        """The peer is a trusted proxy, which names its clients."""
        self.connections = 0
        """Number of connections, including connections of a proxy whose last request came from this client."""
        self.requests = 0
        """Requests being handled, including long polls."""
        self.used = 0
        """Bytes of its requests, and of answers it has not read yet."""
        self.connections_max = connections_max
        self.requests_max = requests_max
        self.bytes_max = bytes_max

    def exceeded_by(self, parts: Sequence[bytes]) -> bool:
        """Return True if an answer of these parts exceeds the limit. A single answer never does."""
        return bool(parts) and self.used > 0 and self.used + sum(map(len, parts)) > self.bytes_max


_ALL = (sys.maxsize,) * 3
UNLIMITED = PeerLimit("", *_ALL)
"""Placeholder until a connection is made."""


class PeerLimits(dict[str, PeerLimit]):
    """Limits by address, created on first use and removed with the last connection."""

    def __init__(self, limits: Limits, proxies: Proxies) -> None:
        super().__init__()
        self._maxima = limits.peer_connections_max, limits.peer_requests_max, limits.peer_bytes_max
        self._proxies = proxies

    def of(self, peer: str) -> PeerLimit:
        """Return the limit of a client, or of a proxy."""
        return self[self.key(peer)]

    def key(self, peer: str) -> str:
        """Return the key of the limit of a client or proxy."""
        return peer if self._proxies.trusts(peer) else network_of(peer)

    def __missing__(self, address: str) -> PeerLimit:
        proxied = self._proxies.trusts(address)
        unlimited = proxied or address in _LOCAL
        limit = self[address] = PeerLimit(address, *(_ALL if unlimited else self._maxima), proxied=proxied)
        limit.connections = int(unlimited)  # never drops to 0, so that the entry stays
        return limit

    def disconnect(self, limit: PeerLimit) -> None:
        limit.connections -= 1
        if not limit.connections:
            del self[limit.address]


class Proxies:
    """Proxies that are trusted to name their clients, by their networks."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Create the set of proxies. Raises InvalidRequest if a text is not an address or network."""
        self._networks = [_network(one.strip()) for one in networks if one.strip()]
        self.client = lru_cache(maxsize=1000)(self._client)
        """Return the client of a request that the proxy `peer` forwarded: the last untrusted hop in X-Forwarded-For.

        Entries before that hop are ignored, because it may have written them itself."""

    def trusts(self, peer: str) -> bool:
        address = _address(peer) if self._networks else None
        return address is not None and self._has(address)

    def _has(self, address: _Address) -> bool:
        return any(address.version == one.version and address in one for one in self._networks)

    def _client(self, peer: str, forwarded: bytes) -> str:
        found = peer
        for hop in reversed(forwarded.decode("latin-1").split(",")):
            address = _address(_bare(hop.strip(" \t")))
            if address is None:
                break
            found = str(address)
            if not self._has(address):
                break
        return found


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidRequest(
            f"trusted_proxies has {text!r:.80}, which is not an address or a network: {error}"
        ) from None


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.version == 6 and address.ipv4_mapped) or address


def _bare(hop: str) -> str:
    """Return a hop without the port that some proxies add."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
