"""Which addresses are those of the public internet, and which lead inside somebody's network."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_IPV6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_INSIDE: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        # Within 2000::/3: protocols' own, documentation, and IPv4 addresses in other clothes.
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
)
"""Written out: what a library counts as private changes with its version."""


def is_public(address: Address) -> bool:
    """Whether it is one of the public internet. Those of IPv4 written as IPv6 are not, whatever they hold."""
    if isinstance(address, ipaddress.IPv6Address) and (address not in _IPV6_PUBLIC or address.scope_id):
        return False
    return address.is_global and not any(address in network for network in _INSIDE)
