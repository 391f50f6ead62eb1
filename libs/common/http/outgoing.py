"""Requests to addresses that users enter: only to public ones and those that operators allow.

Otherwise, a user could make a service send requests to the cloud's metadata service, to the network
of the database or to its own loopback (server-side request forgery). The address is checked when
the connection is opened, after the name is resolved, so that a name which resolves differently the
second time is checked as well. Callers must not follow redirects.
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
from libs.common.identity.networks import is_in_networks, normalize_network
from libs.common.settings import SettingsInvalid

_NAT64 = ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ip_network("2000::/3")
"""The range of public IPv6 addresses. Mapped IPv4, NAT64 and site-local (`fec0::/10`) addresses are
outside."""
_RESERVED_NETWORKS = (
    "168.63.129.16/32",  # platform services of a cloud
    "192.88.99.0/24",  # 6to4 relays, deprecated
    "2001:20::/28",  # host identifiers, not routed
    "3fff::/20",  # documentation
)
"""Addresses that are not public, although `ipaddress` counts them as global."""
_V4_BITS = 0xFFFFFFFF
MAX_URL_LENGTH = 1024
ONLY_LISTED_NETWORKS = "only"
"""Entry of the setting that blocks all addresses outside the listed networks."""


class AddressBlocked(OSError):
    """A host without an address that may be called."""


def parse_networks(text: str) -> tuple[str, ...]:
    """Return the entries, separated by commas, of the setting; raise `SettingsInvalid`.

    Entries are networks and `ONLY_LISTED_NETWORKS`.
    """
    try:
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        return tuple(
            entry if entry == ONLY_LISTED_NETWORKS else normalize_network(entry)
            for entry in entries
        )
    except ValueError as error:
        raise SettingsInvalid(f"THINGWAY_OUTGOING_NETWORKS: {error}") from error


def is_address_allowed(address: str, allowed: tuple[str, ...]) -> bool:
    """Return whether an address is allowed: listed, or public if `allowed` lacks `only`."""
    networks = tuple(entry for entry in allowed if entry != ONLY_LISTED_NETWORKS)
    if is_in_networks(address, networks):
        return True
    try:
        parsed = _unwrap_address(ip_address(address.partition("%")[0]))
    except ValueError:
        return False
    return is_in_networks(str(parsed), networks) or (
        ONLY_LISTED_NETWORKS not in allowed and _is_public(parsed)
    )


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return (
        address.is_global
        and not address.is_multicast
        and not is_in_networks(str(address), _RESERVED_NETWORKS)
    )


def _unwrap_address(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address embedded in an IPv6 address: mapped, 6to4, NAT64."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _V4_BITS)
    return address.ipv4_mapped or address.sixtofour or address


def validate_url(text: str, field: str, allowed: tuple[str, ...]) -> str:
    """Return a base URL without a trailing slash; raise `InvalidInput` for `field`.

    An IP address is checked here; a name is checked when it is called.
    """
    if len(text) > MAX_URL_LENGTH:
        raise InvalidInput(f"must have at most {MAX_URL_LENGTH} characters", field=field)
    try:
        parts = urlsplit(text.strip())
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"is not a URL: {error}", field=field) from error
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidInput("must begin with http:// or https:// and have a host", field=field)
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput("must not have a login, query or fragment", field=field)
    if not is_host_allowed(host, allowed):
        raise InvalidInput(describe_blocked_host(host), field=field)
    return text.strip().rstrip("/")


def describe_blocked_host(host: object) -> str:
    """Return why a host may not be called, and who can change that."""
    return (
        f"{host} is not a public address, or the operator has not allowed it "
        "(THINGWAY_OUTGOING_NETWORKS)"
    )


def is_host_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    """Return whether a host may be called; names are checked when they are called."""
    try:
        ip_address(host)
    except ValueError:
        return True
    return is_address_allowed(host, allowed)


class GuardedResolver(AbstractResolver):
    """Resolves names, and returns only addresses that may be called."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = allowed
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the permitted addresses of a host; raise `AddressBlocked` without any."""
        resolved = await self._resolver.resolve(host, port, family)
        usable = [
            address for address in resolved if is_address_allowed(address["host"], self._allowed)
        ]
        if not usable:
            raise AddressBlocked(errno.EACCES, describe_blocked_host(host))
        return usable

    async def close(self) -> None:
        """Close the resolver."""
        await self._resolver.close()


def _guarded_socket(allowed: tuple[str, ...], target: AddrInfoType) -> socket.socket:
    """Return a socket for an address; raise `AddressBlocked` if it may not be called.

    The connector also checks hosts that it recognizes as addresses although `ip_address` does not,
    for example with full-width dots: they bypass the resolver.
    """
    family, kind, protocol, _, address = target
    if not is_address_allowed(str(address[0]), allowed):
        raise AddressBlocked(errno.EACCES, describe_blocked_host(address[0]))
    return socket.socket(family, kind, protocol)


def create_outgoing_session(
    allowed: tuple[str, ...], seconds: float, *, decompress: bool = True
) -> ClientSession:
    """Return a session for validated URLs; `seconds` limits a request.

    With `decompress`, an invalid content encoding fails the whole request. The number of
    connections is not limited: callers limit requests in turns of tenants, while a connection pool
    would serve requests in their order.
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


async def resolve_outgoing_addresses(
    host: str, port: int, allowed: tuple[str, ...]
) -> list[ResolveResult]:
    """Return the permitted addresses of a host, for clients that connect themselves.

    Connect to one of these addresses, not to the name. Raises `AddressBlocked` if none is
    permitted, and `OSError` if the name is unknown.
    """
    resolver = GuardedResolver(allowed)
    try:
        return await resolver.resolve(host, port, socket.AF_UNSPEC)
    except ValueError as error:  # an empty or too long label
        raise OSError(errno.EINVAL, f"{host!a} is not a host name") from error
    finally:
        await resolver.close()


async def connect_outgoing_socket(host: str, port: int, allowed: tuple[str, ...]) -> socket.socket:
    """Return a TCP connection to a host.

    Raises the errors of `resolve_outgoing_addresses`, and `OSError` if no address accepts it.
    """
    failures: list[OSError] = []
    for address in await resolve_outgoing_addresses(host, port, allowed):
        try:
            return await _connect_socket(address["family"], (address["host"], address["port"]))
        except OSError as error:
            failures.append(error)
    raise failures[0]


async def _connect_socket(family: int, address: tuple[str, int]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(0)
    try:
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
