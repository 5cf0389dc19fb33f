"""Addresses that the broker may call, and addresses that it must refuse."""

from __future__ import annotations

import ipaddress

import pytest

from fairlane.errors import CommandFailed, InvalidRequest
from fairlane.outbound.addresses import Allowed, check_addresses, check_url, is_public

NOTHING = Allowed()


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "100.127.255.255", "0.0.0.0", "0.1.2.3", "192.0.0.1", "198.18.0.1", "198.19.255.255"),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.255.255.255", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2001::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "2606:4700::1%1"),
    ],
)
def test_an_address_that_is_not_of_the_public_internet_is_told(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1"])
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        # Internal addresses, in every spelling.
        *("https://127.0.0.1/", "https://2130706433/", "https://0x7f000001/", "https://0x7f.1/", "https://0177.0.0.1/"),
        *("https://127.1/", "https://0/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/"),
        *("https://169.254.169.254/latest/meta-data/", "https://[fe80::1%25eth0]/", "https://[64:ff9b::7f00:1]/"),
        *("https://127.0.0.1./", "https://1.1.1.1.1/", "https://\uff10x7f.1/", "https://127\u30020\u30020\u30021/"),
        # Users, fragments, and parts that two URL parsers could read differently.
        *("https://a@127.0.0.1/", "https://hooks.example@127.0.0.1/", "https://user:pass@hooks.example/"),
        *("https://hooks.example#@127.0.0.1/", "https://hooks.example\\@127.0.0.1/", "https://hooks.example%2f@x/"),
        *("https://hooks.example /", "https://hooks.example\r\nHost: x/", "https:///path", "https://", "hooks.example"),
        *(
            "https://[::1/",
            "https://hooks.ex\tample/",
            "https://hooks.exämple/",
            "https://hooks.example:99999/",
            "https://hooks.example:x/",
            "https://..example/",
        ),
        # Schemes other than https.
        *("http://hooks.example/", "ftp://hooks.example/", "file:///etc/passwd", "gopher://hooks.example/", ""),
        # Ports of a public address.
        *("https://8.8.8.8:25/", "https://[2606:4700::1]:6379/"),
    ],
)
def test_a_url_that_leads_inside_or_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        check_url(url, NOTHING)
    assert not refused.value.retryable


@pytest.mark.parametrize(
    "url", ["https://hooks.example/a?b=c", "https://HOOKS.example./", "https://8.8.8.8/", "https://[2606:4700::1]:8443"]
)
def test_a_public_url_is_called(url: str) -> None:
    check_url(url, NOTHING)


def test_one_address_inside_among_public_ones_refuses_the_name() -> None:
    public, inside = ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("10.0.0.7")
    check_addresses("hooks.example", 443, [public], NOTHING)
    for addresses in ([inside], [public, inside], [inside, public]):
        with pytest.raises(CommandFailed, match="not public") as refused:
            check_addresses("hooks.example", 443, addresses, NOTHING)
        assert "10.0.0.7" not in str(refused.value)
    with pytest.raises(CommandFailed, match="port 25"):
        check_addresses("hooks.example", 25, [public], NOTHING)


def test_what_is_allowed_inside_is_called_and_nothing_beside_it() -> None:
    allowed = Allowed.parse(["incidents.internal", "queue.internal:9000", "10.1.0.0/16", "[::1]:8080", "127.0.0.1:99"])
    inside = [ipaddress.ip_address("10.9.9.9")]
    for url in (
        *("https://incidents.internal/", "http://incidents.internal:81/", "http://queue.internal:9000/"),
        *("https://10.1.2.3/", "http://10.1.2.3:7/", "http://[::1]:8080/", "http://127.0.0.1:99/"),
    ):
        check_url(url, allowed)
    check_addresses("incidents.internal", 81, inside, allowed)
    check_addresses("INCIDENTS.internal.".lower(), 81, inside, allowed)
    check_addresses("any.example", 7000, [ipaddress.ip_address("10.1.2.3")], allowed)
    for url in (
        *("http://queue.internal:9001/", "http://x.incidents.internal/", "https://10.2.0.1/", "http://[::1]:8081/"),
        *("http://127.0.0.1:98/", "https://[::ffff:10.1.2.3]/", "http://hooks.example/"),
    ):
        with pytest.raises(CommandFailed):
            check_url(url, allowed)
    for host, port in (("x.incidents.internal", 443), ("queue.internal", 443)):
        with pytest.raises(CommandFailed):
            check_addresses(host, port, inside, allowed)


@pytest.mark.parametrize("entry", ["a b", "host:0", "host:x", "10.0.0.0/33", "1.2.3", "http://host", "host/24", "a@b"])
def test_an_allowance_that_means_nothing_is_an_error(entry: str) -> None:
    with pytest.raises(InvalidRequest, match="outbound_allow"):
        Allowed.parse([entry])
