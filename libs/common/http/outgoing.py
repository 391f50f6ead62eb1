"""Requests to addresses that people give: public ones only, unless the operator allows more.

Whoever may name an address could otherwise have a service of ours ask the cloud's metadata,
the database's network or its own loopback (server-side request forgery). The address is judged
where the connection is made, after the name is resolved, so that a name which resolves
differently the second time gains nothing; redirects are the caller's to refuse.
"""

import errno
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from libs.common.errors import InvalidInput
from libs.common.identity.networks import is_inside, normalised

_NAT64 = ip_network("64:ff9b::/96")
_V4_BITS = 0xFFFFFFFF
LONGEST_URL = 1024


class AddressRefused(OSError):
    """A host that resolves to no address which may be called."""


def networks_of(text: str) -> tuple[str, ...]:
    """Networks separated by commas, as settings have them; raise `ValueError`."""
    return tuple(normalised(one) for one in text.split(",") if one.strip())


def may_call(address: str, allowed: tuple[str, ...]) -> bool:
    """Tell whether an IP address is public or among the `allowed` networks."""
    if is_inside(address, allowed):
        return True
    try:
        parsed = _bare(ip_address(address.partition("%")[0]))
    except ValueError:
        return False
    return is_inside(str(parsed), allowed) or (parsed.is_global and not parsed.is_multicast)


def _bare(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for: mapped, 6to4, NAT64."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _V4_BITS)
    return address.ipv4_mapped or address.sixtofour or address


def checked_url(text: str, field: str, allowed: tuple[str, ...]) -> str:
    """A base URL without a slash at its end; raise `InvalidInput` naming `field`.

    An address that is written as one is judged here; a name is judged when it is called.
    """
    if len(text) > LONGEST_URL:
        raise InvalidInput(f"must have at most {LONGEST_URL} characters", field=field)
    try:
        parts = urlsplit(text.strip())
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"is no URL: {error}", field=field) from error
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidInput("must begin with http:// or https:// and name a host", field=field)
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput("must have no login, query or fragment", field=field)
    if _is_address(host) and not may_call(host, allowed):
        raise InvalidInput(f"{host} is not a public address", field=field)
    return text.strip().rstrip("/")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class GuardedResolver(AbstractResolver):
    """Resolves names to addresses that may be called, and to no others."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = allowed
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host; raise `AddressRefused` when none may be called."""
        found = await self._resolver.resolve(host, port, family)
        usable = [one for one in found if may_call(one["host"], self._allowed)]
        if not usable:
            raise AddressRefused(errno.EACCES, f"{host} is not a public address")
        return usable

    async def close(self) -> None:
        """Release what the resolver holds."""
        await self._resolver.close()


def outgoing_session(allowed: tuple[str, ...], seconds: float) -> ClientSession:
    """A session for addresses that `checked_url` let through; `seconds` bound each request."""
    connector = TCPConnector(resolver=GuardedResolver(allowed), limit=32, limit_per_host=8)
    return ClientSession(
        connector=connector, timeout=ClientTimeout(total=seconds), cookie_jar=DummyCookieJar()
    )
