"""Shares of clients: what one address or IPv6 network may take of all there is, and which address a request is from."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

from fairlane.errors import InvalidRequest
from fairlane.http.server.message import Limits

_LOCAL = ("", "127.0.0.1", "::1")
"""Of whom all on this machine, and a proxy on it that is not named, have the same: it has no share of its own."""
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


_PRIVATE = ipaddress.ip_network("fc00::/7")


@lru_cache(maxsize=1000)
def network_of(peer: str) -> str:
    """Return the key for the limits of a client: its IPv4 address, or the /64 network of its IPv6 address.

    One machine usually controls all 2^64 addresses of a public /64. A private /64 is shared by many machines, so its
    addresses count separately."""
    address = _address(peer)
    if address is None or address.version == 4:
        return peer if address is None else str(address)
    if address.is_loopback or address.is_link_local or address in _PRIVATE:
        return peer
    return str(ipaddress.ip_network((address, 64), strict=False))


class Share:
    """The share of one address: what it uses, and what it may."""

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
        """It is a proxy's, which names its clients."""
        self.connections = 0
        """Also those of a proxy whose last request came from here."""
        self.requests = 0
        """Being answered; those that wait for messages among them."""
        self.used = 0
        """Bytes of its requests, and of answers that it did not read yet."""
        self.connections_max = connections_max
        self.requests_max = requests_max
        self.bytes_max = bytes_max

    def lacks(self, parts: Sequence[bytes]) -> bool:
        """Whether an answer of these parts is too much beside what is in use; one alone never is."""
        return self.used > 0 and self.used + sum(map(len, parts)) > self.bytes_max


_ALL = (sys.maxsize,) * 3
NOBODY = Share("", *_ALL)
"""The share of a connection that is not made yet."""


class Shares(dict[str, Share]):
    """The shares by address: of those that are connected now, and of whoever asks for many others, who may have all."""

    def __init__(self, limits: Limits, proxies: Proxies) -> None:
        super().__init__()
        self._most = limits.peer_connections_max, limits.peer_requests_max, limits.peer_bytes_max
        self._proxies = proxies

    def of(self, peer: str) -> Share:
        """Return the share of a client, or of a proxy."""
        return self[self.name(peer)]

    def name(self, peer: str) -> str:
        """Return the address of the share that a client or proxy has."""
        return peer if self._proxies.trusts(peer) else network_of(peer)

    def __missing__(self, address: str) -> Share:
        proxied = self._proxies.trusts(address)
        many = proxied or address in _LOCAL
        share = self[address] = Share(address, *(_ALL if many else self._most), proxied=proxied)
        share.connections = int(many)  # one that is none, so that it is not forgotten
        return share

    def leave(self, share: Share) -> None:
        share.connections -= 1
        if not share.connections:
            del self[share.address]


class Proxies:
    """Proxies that are trusted to name their clients, by their networks."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """InvalidRequest if one is no address or network."""
        self._networks = [_network(one.strip()) for one in networks if one.strip()]
        self.client = lru_cache(maxsize=1000)(self._client)
        """Who asks, by the X-Forwarded-For of a request that such a proxy, `peer`, sent: the last hop that is none. Of
        what that hop may have written itself nothing counts."""

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
        raise InvalidRequest(f"trusted_proxies has {text!r:.80}, which is no address or network: {error}") from None


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.version == 6 and address.ipv4_mapped) or address


def _bare(hop: str) -> str:
    """Without a port, which some proxies add."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
