"""By what the address of a client is counted."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network


def counted_address(address: str) -> str:
    """The address, or the /64 network of an IPv6 one: a client has all of it."""
    return address if ":" not in address else _network_of(address)


@lru_cache(maxsize=4096)
def _network_of(address: str) -> str:
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed, 64), strict=False))
