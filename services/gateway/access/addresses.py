"""Where a request comes from, and whose word is taken for it."""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple

from libs.common.settings import SettingsInvalid


class Origin(NamedTuple):
    """The client, as seen through the proxies that are trusted."""

    address: str
    """The client's own address."""
    forwarded_for: str
    """`X-Forwarded-For` for the service."""
    scheme: str
    host: str

    @property
    def limit_key(self) -> str:
        """What the rate limit counts by: the address, or the /64 network of an IPv6 one."""
        return self.address if ":" not in self.address else _network_of(self.address)


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


@dataclass(frozen=True, slots=True)
class Peer:
    """What the connection and the header fields say of themselves."""

    address: str
    scheme: str
    host: str
    forwarded_for: str
    forwarded_proto: str
    forwarded_host: str


class TrustedProxies:
    """Believes `X-Forwarded-*` of the addresses it was told, and of nobody else."""

    def __init__(self, text: str = "") -> None:
        try:
            self._networks = [
                ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()
            ]
        except ValueError as error:
            raise SettingsInvalid(f"THINGWAY_TRUSTED_PROXIES: {error}") from error
        self._trusts = lru_cache(maxsize=4096)(self._is_trusted)

    def origin(self, peer: Peer) -> Origin:
        """Find the client: the last address in the chain that is not a trusted proxy."""
        if not self._networks or not self._trusts(peer.address):
            return Origin(peer.address, peer.address, peer.scheme, peer.host)
        chain = [part.strip() for part in peer.forwarded_for.split(",") if part.strip()]
        client = peer.address
        for address in reversed(chain):
            client = address
            if not self._trusts(address):
                break
        return Origin(
            client,
            ", ".join([*chain, peer.address]),
            peer.forwarded_proto or peer.scheme,
            peer.forwarded_host or peer.host,
        )

    def _is_trusted(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)
