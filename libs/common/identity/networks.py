"""Networks from which callers may connect.

Proxies and servers write addresses with a zone (`fe80::1%eth0`), or an IPv4 address mapped into
IPv6 (`::ffff:192.0.2.1`, RFC 4291, 2.5.5.2), which is equivalent to the IPv4 address.
"""

from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

MAPPED_PREFIX_BITS = 96
"""Bits before the IPv4 part of a mapped address."""

_Network = IPv4Network | IPv6Network


def normalize_network(text: str) -> str:
    """Return an address or a CIDR network in its shortest spelling.

    Raises `ValueError` for any other text and for an address with a zone. It also raises it for a
    network with bits set after its prefix: either the address or the prefix may be wrong.
    """
    if "%" in text:
        raise ValueError(f"{text!r} has a zone, which is valid only on one host")
    network = _unwrap_mapped(ip_network(text.strip()))
    if network.prefixlen == network.max_prefixlen:
        return str(network.network_address)
    return str(network)


def is_in_networks(address: str, networks: tuple[str, ...]) -> bool:
    """Return whether `address` is in one of `networks`; False if it is not an address."""
    parsed = _parse_address(address)
    return parsed is not None and any(parsed in network for network in _parse_networks(networks))


@lru_cache(maxsize=4096)
def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        parsed = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(parsed, IPv6Address) and parsed.ipv4_mapped) or parsed


@lru_cache(maxsize=1024)
def _parse_networks(texts: tuple[str, ...]) -> tuple[_Network, ...]:
    return tuple(ip_network(text) for text in texts)


def _unwrap_mapped(network: _Network) -> _Network:
    if isinstance(network, IPv6Network) and network.prefixlen >= MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - MAPPED_PREFIX_BITS))
    return network
