"""The client address that a trusted proxy reports in X-Forwarded-For, for any content of the header."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import InvalidRequest
from fairlane.http.server import Limits, Proxies
from fairlane.http.server.peer_limits import PeerLimits

PROXY, INNER, CLIENT = "10.0.0.1", "192.168.7.7", "203.0.113.9"
PROXIES = Proxies(["10.0.0.0/8", " 192.168.7.7", "fd00::/8", ""])
hops = st.one_of(
    st.ip_addresses().map(str),
    st.sampled_from([PROXY, INNER, CLIENT, "fd00::1", "unknown", "_hidden", "", " ", "127.0.0.1", "::ffff:10.0.0.1"]),
    st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=20),
)
headers = st.lists(hops, max_size=8).map(",".join)


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("", PROXY),
        (CLIENT, CLIENT),
        (f"6.6.6.6, {CLIENT}", CLIENT),
        (f"6.6.6.6,{CLIENT} ,\t{INNER}, 10.9.9.9", CLIENT),
        (f"{INNER}, 10.2.0.1", INNER),
        (f"{CLIENT}:4711", CLIENT),
        ("[2001:db8::5]:4711, 10.0.0.2", "2001:db8::5"),
        ("2001:DB8:0::5", "2001:db8::5"),
        ("fe80::1%eth0", "fe80::1"),
        (f"::ffff:{CLIENT}, ::ffff:10.0.0.5", CLIENT),
        (f"{CLIENT}, unknown", PROXY),
        (f"{CLIENT}, unknown, {INNER}", INNER),
        ("1.2.3.4.5", PROXY),
        ("0x7f.1, 10.0.0.2", "10.0.0.2"),
        ("\uff11.2.3.4".encode().decode("latin-1"), PROXY),
        (f"{CLIENT},", PROXY),
    ],
)
def test_the_client_is_the_last_hop_that_is_no_proxy(forwarded: str, client: str) -> None:
    assert PROXIES.client(PROXY, forwarded.encode("latin-1")) == client


@given(headers)
def test_it_is_always_an_address_that_stands_there_or_the_proxy(forwarded: str) -> None:
    found = PROXIES.client(PROXY, forwarded.encode("latin-1"))
    assert str(ipaddress.ip_address(found)) == found
    assert found == PROXY or PROXIES.client(PROXY, found.encode()) == found


@given(headers, st.ip_addresses().map(str).filter(lambda one: not PROXIES.trusts(one)))
def test_what_a_client_sends_itself_makes_no_difference(forged: str, client: str) -> None:
    """The proxy appends the address that it sees to whatever the client sent."""
    seen = Proxies().client(client, b"")
    for behind in ("", f", {INNER}"):
        said = f"{forged}, {client}{behind}".encode("latin-1")
        alone = f"{client}{behind}".encode()
        assert PROXIES.client(PROXY, said) == PROXIES.client(PROXY, alone)
    assert seen == client


def test_nobody_is_trusted_who_is_not_named() -> None:
    assert not Proxies().trusts("127.0.0.1")
    assert not Proxies([""]).trusts("")
    assert PROXIES.trusts("10.255.0.1")
    assert PROXIES.trusts("::ffff:10.0.0.1")
    assert not PROXIES.trusts("11.0.0.1")
    assert not PROXIES.trusts("")


@pytest.mark.parametrize("network", ["10.0.0.1/8", "proxy.example", "10.0.0.0/33", "*", "10.0.0.0-10.0.0.9"])
def test_a_network_that_is_none_is_refused(network: str) -> None:
    with pytest.raises(InvalidRequest, match="trusted_proxies has"):
        Proxies(["127.0.0.1", network])


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        ("2001:db8:0:7::1", "2001:db8:0:7::/64"),
        ("2001:db8:0:7:ffff::1", "2001:db8:0:7::/64"),
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("fd00::1", "fd00::1"),
        ("::1", "::1"),
        ("2001:db8:0:9::1", "2001:db8:0:9::1"),
        ("", ""),
    ],
)
def test_an_address_is_counted_by_itself_or_by_its_network(peer: str, counted: str) -> None:
    """IPv6 addresses are counted by network, except private addresses and trusted proxies."""
    limits = PeerLimits(Limits(), Proxies(["2001:db8:0:9::1"]))
    assert limits.of(peer).address == counted
    assert limits.of(peer) is limits.of(peer)
