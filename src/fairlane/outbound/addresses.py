"""Addresses that outbound requests may reach: the public internet, and the hosts and networks that are allowed.

The owner of a name in a URL decides what it resolves to. So every address is checked each time a connection is made,
and the connection goes to an address that was checked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from fairlane.errors import CommandFailed, InvalidRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS = frozenset({443, 8443})
"""Ports that may be called on public hosts. Services on other ports are seldom meant for the public."""
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}\.?")
_HOST = re.compile(rf"({_NAME.pattern}|\[[0-9a-f:.]{{2,45}}\])(:[0-9]{{1,5}})?")

_IPV6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_INSIDE: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("168.63.129.16/32", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        # Reserved blocks within 2000::/3: protocol use, documentation, and embedded IPv4 addresses.
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)
"""Networks that count as internal. They are listed here because the answer of a library changes with its version.

168.63.129.16 is a public address that reaches the host of a virtual machine on Azure.
"""


def is_public(address: Address) -> bool:
    """Return True if this is an address of the public internet. IPv4 addresses embedded in IPv6 never are."""
    if isinstance(address, ipaddress.IPv6Address) and (address not in _IPV6_PUBLIC or address.scope_id):
        return False
    return address.is_global and not any(address in network for network in _INSIDE)


class Allowed(NamedTuple):
    """An allow list for outbound calls: host names and networks, each with a port or with None for all ports."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[tuple[Network, int | None], ...] = ()
    everything: bool = False
    """True if every address is allowed, for a URL that a person gave on the command line."""

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Allowed:
        """Parse entries like `incidents.internal`, `10.1.0.0/16` or `[::1]:8080`."""
        hosts: set[tuple[str, int | None]] = set()
        networks: list[tuple[Network, int | None]] = []
        for entry in filter(None, map(str.strip, entries)):
            host, port = _entry(entry)
            try:
                networks.append((ipaddress.ip_network(host), port))
            except ValueError:
                if not _NAME.fullmatch(host) or host.replace(".", "").isdecimal():
                    raise InvalidRequest(
                        f"outbound_allow: {entry!r:.100} is not a host, an address or a network"
                    ) from None
                hosts.add((host, port))
        return cls(frozenset(hosts), tuple(networks))

    def allows_host(self, host: str, port: int) -> bool:
        return self.everything or (host, None) in self.hosts or (host, port) in self.hosts

    def allows_ip(self, address: Address, port: int) -> bool:
        return any(address in network and wanted in (None, port) for network, wanted in self.networks)


NOTHING_INSIDE: Final = Allowed()


def _entry(entry: str) -> tuple[str, int | None]:
    """Split an entry into host or network, and port or None. An IPv6 address with a port needs brackets."""
    host, colon, port = entry.lower().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed) or entry.endswith("]"):
        return entry.lower().strip("[]").rstrip("."), None
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidRequest(f"outbound_allow: {entry!r:.100} has no port behind its colon")
    return host.strip("[]").rstrip("."), int(port)


def is_plain_url(url: str) -> bool:
    """Return True for an HTTP URL with a host that all URL parsers read the same way."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not set(url) & set(" \\#")
    if not plain or parts.scheme not in ("http", "https") or not _HOST.fullmatch(parts.netloc.lower()):
        return False
    # Historic spellings of addresses, like 2130706433, 0x7f.1 or 0177.0.0.1.
    last = host.rstrip(".").rsplit(".", 1)[-1]
    return _written_out(host) is not None or not (last.isdecimal() or last.startswith("0x"))


def check_url(url: str, allowed: Allowed) -> None:
    """Raise CommandFailed if this URL may not be called. `check_addresses` checks a name when it is resolved."""
    if not is_plain_url(url):
        raise CommandFailed(
            f"{url!r:.200} is not called: it must be https:// and a host as usually written, without user or fragment"
        )
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _written_out(host)
    named = allowed.allows_host(host.rstrip("."), port) or (address is not None and allowed.allows_ip(address, port))
    if parts.scheme != "https" and not named:
        raise CommandFailed(f"{host} is not called over plain http: only hosts in outbound_allow are")
    if address is not None:
        check_addresses(host, port, [address], allowed)


def check_addresses(host: str, port: int, addresses: Iterable[Address], allowed: Allowed) -> None:
    """Raise CommandFailed unless every address of a host may be called.

    A single internal address is enough to refuse the host.
    """
    if allowed.allows_host(host.rstrip("."), port):
        return
    for address in addresses:
        if allowed.allows_ip(address, port):
            continue
        if not is_public(address):
            # The error leaves out the address, because it would reveal the internal network.
            raise CommandFailed(
                f"{host} is not called: it leads to an address that is not public, and is not in outbound_allow"
            )
        if port not in PORTS:
            raise CommandFailed(f"{host} is not called on port {port}: only 443, 8443 and what is in outbound_allow")


def _written_out(host: str) -> Address | None:
    """Return the address if a host is written as one, or None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
