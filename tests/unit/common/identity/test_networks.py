"""Which addresses are inside which networks."""

import pytest

from libs.common.identity.networks import is_in_networks

NETWORKS = ("192.0.2.0/24", "198.51.100.7", "2001:db8::/32")


@pytest.mark.parametrize(
    "address",
    ["192.0.2.255", "198.51.100.7", "2001:db8:ffff::1", "::ffff:192.0.2.1", "2001:db8::1%eth0"],
)
def test_an_address_of_a_network_is_inside(address):
    """In both families, mapped into IPv6, or with a zone."""
    assert is_in_networks(address, NETWORKS)


@pytest.mark.parametrize(
    "address", ["192.0.3.0", "198.51.100.8", "2001:db9::", "::ffff:192.0.3.1", "", "unknown"]
)
def test_every_other_address_is_outside(address):
    """So is what is no address."""
    assert not is_in_networks(address, NETWORKS)


def test_all_of_ipv6_is_not_all_of_ipv4():
    """A list for both must contain both."""
    assert not is_in_networks("192.0.2.1", ("::/0",))
    assert not is_in_networks("::ffff:192.0.2.1", ("::/0",))
