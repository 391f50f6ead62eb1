"""Requests to addresses that people give: public ones only, unless the operator allows more.

Whoever may name an address could otherwise have a service of ours ask the cloud's metadata,
the database's network or its own loopback (server-side request forgery). The address is judged
where the connection is made, after the name is resolved, so that a name which resolves
differently the second time gains nothing; redirects are the caller's to refuse.
"""

import asyncio
import errno
import socket
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from aiohttp import AddrInfoType, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from libs.common.errors import InvalidInput
from libs.common.identity.networks import is_inside, normalised
from libs.common.settings import SettingsInvalid

_NAT64 = ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ip_network("2000::/3")
"""All public IPv6 addresses: not those that embed an IPv4 address, nor `fec0::/10` (site-local)."""
_RESERVED = (
    "168.63.129.16/32",  # platform services of a cloud
    "192.88.99.0/24",  # relays of 6to4, deprecated
    "2001:20::/28",  # identifiers of hosts, which are not routed
    "3fff::/20",  # documentation
)
"""Addresses without a public host that `ipaddress` counts as global."""
_V4_BITS = 0xFFFFFFFF
LONGEST_URL = 1024


class AddressRefused(OSError):
    """A host that resolves to no address which may be called."""


def networks_of(text: str) -> tuple[str, ...]:
    """Networks separated by commas, as the setting has them; raise `SettingsInvalid`."""
    try:
        return tuple(normalised(one) for one in text.split(",") if one.strip())
    except ValueError as error:
        raise SettingsInvalid(f"THINGWAY_OUTGOING_NETWORKS: {error}") from error


def may_call(address: str, allowed: tuple[str, ...]) -> bool:
    """Tell whether an IP address is public or among the `allowed` networks."""
    if is_inside(address, allowed):
        return True
    try:
        parsed = _bare(ip_address(address.partition("%")[0]))
    except ValueError:
        return False
    return is_inside(str(parsed), allowed) or _is_public(parsed)


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not is_inside(str(address), _RESERVED)


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
    if not may_be_called(host, allowed):
        raise InvalidInput(not_public(host), field=field)
    return text.strip().rstrip("/")


def not_public(host: object) -> str:
    """Why a host may not be called, and who can change that."""
    return (
        f"{host} is not a public address, and the operator has not allowed it "
        "(THINGWAY_OUTGOING_NETWORKS)"
    )


def may_be_called(host: str, allowed: tuple[str, ...]) -> bool:
    """Tell whether a host may be called as it is written: a name is judged when it is called."""
    try:
        ip_address(host)
    except ValueError:
        return True
    return may_call(host, allowed)


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
            raise AddressRefused(errno.EACCES, not_public(host))
        return usable

    async def close(self) -> None:
        """Release what the resolver holds."""
        await self._resolver.close()


def _guarded_socket(allowed: tuple[str, ...], target: AddrInfoType) -> socket.socket:
    """A socket for an address; raise `AddressRefused` when it may not be called.

    Where a connection is made, names that a URL spells as an address in a way of its own
    (with wide dots, say) are no longer names.
    """
    family, kind, protocol, _, address = target
    if not may_call(str(address[0]), allowed):
        raise AddressRefused(errno.EACCES, not_public(address[0]))
    return socket.socket(family, kind, protocol)


def outgoing_session(
    allowed: tuple[str, ...], seconds: float, *, decompress: bool = True
) -> ClientSession:
    """Return a session for addresses that `checked_url` let through; `seconds` bound each request.

    With `decompress` a body with a wrong content encoding costs the answer, status and all. There
    are as many connections as requests, which the callers bound in turns of tenants: a pool would
    serve whoever comes first.
    """
    connector = TCPConnector(
        resolver=GuardedResolver(allowed),
        limit=0,
        socket_factory=partial(_guarded_socket, allowed),
    )
    return ClientSession(
        connector=connector,
        timeout=ClientTimeout(total=seconds),
        cookie_jar=DummyCookieJar(),
        auto_decompress=decompress,
    )


async def outgoing_addresses(host: str, port: int, allowed: tuple[str, ...]) -> list[ResolveResult]:
    """The addresses of a host that may be called, for clients which connect themselves.

    Connect to one of them, not to the name; raises `AddressRefused` when there is none, and
    `OSError` when the name is unknown.
    """
    resolver = GuardedResolver(allowed)
    try:
        return await resolver.resolve(host, port, socket.AF_UNSPEC)
    except ValueError as error:  # an empty or too long label
        raise OSError(errno.EINVAL, f"{host!a} is no name of a host") from error
    finally:
        await resolver.close()


async def outgoing_socket(host: str, port: int, allowed: tuple[str, ...]) -> socket.socket:
    """A connection to a host for what is not HTTP; raises as `outgoing_addresses` does."""
    failures: list[OSError] = []
    for one in await outgoing_addresses(host, port, allowed):
        try:
            return await _connected(one["family"], (one["host"], one["port"]))
        except OSError as error:
            failures.append(error)
    raise failures[0]


async def _connected(family: int, address: tuple[str, int]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(0)
    try:
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
