"""Which addresses people may have the platform call."""

import pytest

from libs.common.errors import InvalidInput
from libs.common.http.outgoing import (
    AddressBlocked,
    GuardedResolver,
    connect_outgoing_socket,
    is_address_allowed,
    parse_networks,
    validate_url,
)
from libs.common.settings import SettingsInvalid


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8"])
def test_public_addresses_may_be_called(address):
    """IPv4, IPv6, and IPv4 inside IPv6."""
    assert is_address_allowed(address, ())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "nonsense",
        "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::1",
        "fec0::1", "feff::1", "::8.8.8.8", "::127.0.0.1", "::ffff:0:8.8.8.8", "::ffff:0:10.0.0.1",
        "4000::1", "5f00::1", "64:ff9b:1::8.8.8.8", "192.88.99.1", "2001:20::1", "3fff::1",
    ],
)  # fmt: skip
def test_others_may_not(address):
    """Loopback, private, link-local, shared, multicast, reserved, however they are written."""
    assert not is_address_allowed(address, ())


def test_the_operator_allows_more():
    """Networks of the settings, and nothing beside them."""
    allowed = parse_networks("127.0.0.0/8, 10.1.0.0/16,::1")
    assert is_address_allowed("127.0.0.1", allowed)
    assert is_address_allowed("::ffff:10.1.2.3", allowed)
    assert is_address_allowed("::1", allowed)
    assert not is_address_allowed("10.2.0.1", allowed)
    assert parse_networks("") == ()
    with pytest.raises(SettingsInvalid, match=r"THINGWAY_OUTGOING_NETWORKS: .*nowhere"):
        parse_networks("nowhere")


def test_the_operator_can_block_all_other_addresses():
    """With `only`, public addresses need to be in an allowed network, too."""
    allowed = parse_networks("only, 203.0.113.0/24,10.1.0.0/16")
    assert is_address_allowed("203.0.113.7", allowed)
    assert is_address_allowed("10.1.0.7", allowed)
    assert not is_address_allowed("8.8.8.8", allowed)
    assert not is_address_allowed("2001:4860:4860::8888", allowed)
    assert not is_address_allowed("10.2.0.1", allowed)
    with pytest.raises(InvalidInput):
        validate_url("https://8.8.8.8", "url", allowed)


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://example.com", "example.com", "http://", "http:///path", "//example.com",
        "http://user:pw@example.com", "http://example.com/?a=1", "http://example.com/#a",
        "http://127.0.0.1", "https://[::1]:8080", "http://169.254.169.254/latest",
        "http://example.com:99999", "http://[::1", "http://example.com/" + "a" * 1024,
    ],
)  # fmt: skip
def test_an_invalid_base_url_is_rejected_with_its_field(url):
    """Other schemes, logins, queries and private addresses are invalid."""
    with pytest.raises(InvalidInput) as refused:
        validate_url(url, "base_url", ())
    assert refused.value.field == "base_url"


def test_a_base_url_loses_its_last_slash():
    """Its path stays."""
    assert validate_url(" https://example.com/api/ ", "u", ()) == "https://example.com/api"
    assert validate_url("http://127.0.0.1:80", "u", ("127.0.0.0/8",)) == "http://127.0.0.1:80"


async def test_a_host_name_is_checked_by_its_addresses():
    """Every name of a loopback address is rejected like `localhost`."""
    resolver = GuardedResolver(())
    with pytest.raises(AddressBlocked, match="localhost"):
        await resolver.resolve("localhost", 80)
    found = await GuardedResolver(("127.0.0.0/8",)).resolve("localhost", 80)
    assert {one["host"] for one in found} == {"127.0.0.1"}
    await resolver.close()


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64])
async def test_a_name_that_no_host_can_have_is_an_unknown_one(host: str):
    """The resolver raises something else, which callers would log as a fault of ours."""
    with pytest.raises(OSError, match="is not a host name"):
        await connect_outgoing_socket(host, 1, ())
