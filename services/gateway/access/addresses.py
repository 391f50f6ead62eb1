"""The origin of a request, through trusted proxies."""

from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from litestar.types import HTTPScope

from libs.common.limits import address_key
from libs.common.settings import SettingsInvalid


class ClientOrigin(NamedTuple):
    """Address of a request's client, and scheme and host that it used."""

    address: str
    """The client's IP address."""
    forwarded_for: str
    """The value of `X-Forwarded-For` for the service."""
    scheme: str
    host: str

    @property
    def rate_limit_key(self) -> str:
        """Return the key of the rate limit: an IPv4 address, or a /64 network of IPv6."""
        return address_key(self.address)


def _header_text(headers: dict[bytes, bytes], name: bytes, default: str) -> str:
    value = headers.get(name)
    return default if value is None else value.decode("latin-1")


class TrustedProxies:
    """Accepts `X-Forwarded-*` only from configured proxies."""

    def __init__(self, text: str = "") -> None:
        try:
            self._networks = [
                ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()
            ]
        except ValueError as error:
            raise SettingsInvalid(f"THINGWAY_TRUSTED_PROXIES: {error}") from error
        self._trusts = lru_cache(maxsize=4096)(self._is_in_networks)

    def is_trusted(self, peer: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
        return bool(self._networks) and self._trusts(peer)

    def find_origin(self, scope: HTTPScope, headers: dict[bytes, bytes]) -> ClientOrigin:
        """Return the client, scheme and host of a request.

        A trusted proxy reports them in `X-Forwarded-*`. The client's address is then the last one
        in the chain that is not a trusted proxy's, or the first one if all are.
        """
        client = scope["client"]
        peer = client[0] if client else "unknown"
        host = _header_text(headers, b"host", "")
        if not self.is_trusted(peer):
            return ClientOrigin(peer, peer, scope["scheme"], host)
        forwarded = _header_text(headers, b"x-forwarded-for", "").split(",")
        chain = [part.strip() for part in forwarded if part.strip()]
        return ClientOrigin(
            self._find_last_untrusted([*chain, peer]),
            ", ".join([*chain, peer]),
            _header_text(headers, b"x-forwarded-proto", scope["scheme"]),
            _header_text(headers, b"x-forwarded-host", host),
        )

    def _find_last_untrusted(self, chain: list[str]) -> str:
        for address in reversed(chain):
            if not self._trusts(address):
                return address
        return chain[0]

    def _is_in_networks(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)
