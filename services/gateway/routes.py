"""The routing table: the service and the required credential of each path.

A new public API is an additional entry of `ROUTES`. Operations of the management API are also
served below `API_PREFIX`.
"""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any
from urllib.parse import parse_qs

from libs.common.contracts.frames import MAX_HOOK_BYTES
from libs.common.contracts.limits import MAX_PICTURE_BYTES
from libs.common.identity import PrincipalKind

MAX_POLL_EXTENSION_SECONDS = 600.0
"""Maximum seconds by which the wait that a long poll requests extends its time limit."""


class CredentialType(Enum):
    """The type of credential of a route."""

    NONE = "none"
    TOKEN = "token"  # noqa: S105 - the type, not a token
    """`Authorization: Bearer`; for the open API also the query parameter `access_token`."""
    DEVICE_KEY = "device_key"
    """HTTP Basic with SN and device key, or a client certificate with the SN. The first segment of
    the path after the prefix must be this SN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path prefix, the service that answers it, and the credential that it requires."""

    name: str
    """Name in metrics."""
    prefix: bytes
    """Prefix of the encoded path; without a trailing slash, the complete path, to which a slash may
    be appended."""
    excluded_prefix: bytes | None = None
    """A prefix of the rest of the path that belongs to another route, or is not public."""
    upstream: str
    """The service that answers."""
    rewrite: bytes | None = None
    """Replaces the prefix in requests to the service."""
    credential: CredentialType
    kinds: frozenset[PrincipalKind] = frozenset()
    """Kinds of principals that may call."""
    signs_in: bool = False
    """Whether the route checks passwords or secrets, so that the stricter limit per address
    applies."""
    long_poll: bytes | None = None
    """Suffix of paths of long polls, whose answers may take `wait` seconds (a query parameter)."""
    secret_path: bool = False
    """Whether the path itself is the credential, so that each path is counted separately."""
    max_body: int | None = None
    """Maximum bytes of a body, if it differs from `THINGWAY_MAX_BODY`."""
    passes_login: bool = False
    """Whether the service checks `Authorization` itself, because the caller is not a principal."""

    def matches(self, path: bytes) -> bool:
        """Return whether the route answers `path`."""
        if not self.prefix.endswith(b"/"):
            return path.removesuffix(b"/") == self.prefix
        if not path.startswith(self.prefix):
            return False
        return self.excluded_prefix is None or not path.startswith(
            self.excluded_prefix, len(self.prefix)
        )

    @property
    def takes_query_token(self) -> bool:
        """Return whether the token may be a query parameter, which proxies may log."""
        return PrincipalKind.APPLICATION in self.kinds

    def rewrite_path(self, path: bytes) -> bytes:
        """Return the path of the request to the service."""
        return path if self.rewrite is None else self.rewrite + path[len(self.prefix) :]

    def read_poll_seconds(self, path: bytes, query: bytes) -> float:
        """Return the maximum seconds of a long poll; 0 for other requests."""
        if self.long_poll is None or b"wait=" not in query or not path.endswith(self.long_poll):
            return 0.0
        values = parse_qs(query.decode("latin-1")).get("wait", [])
        return max(map(_parse_poll_seconds, values), default=0.0)


API_PREFIX = b"/api/v1"
"""Prefix that existing consoles prepend to every path of the management API."""


def _parse_poll_seconds(text: str) -> float:
    try:
        return min(max(0.0, float(text)), MAX_POLL_EXTENSION_SECONDS)
    except ValueError:
        return 0.0


def _public_routes(prefix: bytes, upstream: str, **options: Any) -> tuple[Route, ...]:
    """Return routes for a public part of the management API; tokens are ignored.

    `options` are additional fields of `Route`.
    """
    name = "sign-in" if options.get("signs_in") else "open"
    route = Route(
        name=name, prefix=prefix, upstream=upstream, credential=CredentialType.NONE, **options
    )
    return _with_copy_below_api(route)


def _console_routes(
    prefix: bytes, upstream: str, *, excluded_prefix: bytes | None = None
) -> tuple[Route, ...]:
    """Return routes for the users' part of the management API, at and below `prefix`."""
    lines = (
        Route(
            name="console",
            prefix=path,
            excluded_prefix=excluded_prefix,
            upstream=upstream,
            credential=CredentialType.TOKEN,
            kinds=frozenset({PrincipalKind.USER}),
        )
        for path in (prefix, prefix + b"/")
    )
    return tuple(route for line in lines for route in _with_copy_below_api(line))


def _with_copy_below_api(route: Route) -> tuple[Route, Route]:
    return route, replace(route, prefix=API_PREFIX + route.prefix, rewrite=route.prefix)


_DEVICE_ROUTE = Route(
    name="device",
    prefix=b"/device/openapi/v1/",
    upstream="device",
    credential=CredentialType.TOKEN,
    kinds=frozenset({PrincipalKind.APPLICATION}),
)
_LIMITS_ROUTE = replace(_DEVICE_ROUTE, prefix=b"/device/openapi/v1/limits", upstream="auth")
"""The only operation of the device open API that `device` does not serve."""

ROUTES = (
    Route(
        name="token",
        prefix=b"/oauth/token",
        upstream="auth",
        credential=CredentialType.NONE,
        signs_in=True,
    ),
    _DEVICE_ROUTE,
    _LIMITS_ROUTE,
    replace(_LIMITS_ROUTE, prefix=b"/device/openapi/v1.0/limits", rewrite=_LIMITS_ROUTE.prefix),
    replace(_DEVICE_ROUTE, prefix=b"/device/openapi/v1.0/", rewrite=_DEVICE_ROUTE.prefix),
    Route(
        name="ingest",
        prefix=b"/ingest/v1/",
        upstream="device",
        credential=CredentialType.DEVICE_KEY,
        kinds=frozenset({PrincipalKind.DEVICE}),
        long_poll=b"/commands",
    ),
    *_public_routes(b"/oauth2/token", "auth", signs_in=True),
    *_public_routes(b"/user/register", "auth", signs_in=True),
    *_public_routes(b"/user/status", "auth", signs_in=True),
    *_console_routes(b"/user", "auth"),
    *_console_routes(b"/application", "auth"),
    *_console_routes(b"/audit", "auth"),
    *_console_routes(b"/tenant", "auth"),
    *_console_routes(b"/mqtt/web/credentials", "auth"),
    *_console_routes(b"/mqtt/broker-info", "auth"),
    *_console_routes(b"/device", "device", excluded_prefix=b"openapi/"),
    *_console_routes(b"/device-batch", "device"),
    *_console_routes(b"/device-group", "device"),
    *_console_routes(b"/alarms", "device"),
    *_console_routes(b"/alarm-rules", "device"),
    *_console_routes(b"/entity", "device"),
    *_console_routes(b"/system", "device"),
    *_console_routes(b"/product", "device"),
    *_console_routes(b"/product-template", "device"),
    *_console_routes(b"/blueprint-library-setting", "device"),
    *_console_routes(b"/rps", "device"),
    *_console_routes(b"/integration", "management", excluded_prefix=b"hooks/"),
    *_public_routes(
        b"/integration/hooks/", "management", secret_path=True, max_body=MAX_HOOK_BYTES
    ),
    *_console_routes(b"/dashboard", "management"),
    *_console_routes(b"/canvas", "management"),
    *_console_routes(b"/resource", "management"),
    *_public_routes(b"/resource/uploads/", "management", max_body=MAX_PICTURE_BYTES),
    *_public_routes(b"/resource/files/", "management"),
    *_public_routes(b"/public/", "management"),
    *_console_routes(b"/credentials", "workflow"),
    *_console_routes(b"/alarm-notifications", "workflow"),
    *_console_routes(b"/workflow", "workflow", excluded_prefix=b"hooks/"),
    *_public_routes(b"/workflow/hooks/", "workflow", secret_path=True),
    *_public_routes(b"/workflow-http-in/", "workflow", secret_path=True, passes_login=True),
)


class RouteTable:
    """Finds the route of a path; the longest prefix takes precedence.

    Routes of services that are not in `upstreams` are ignored, so that their paths are unknown.
    """

    def __init__(
        self, routes: Iterable[Route] = ROUTES, upstreams: Container[str] | None = None
    ) -> None:
        served = (route for route in routes if upstreams is None or route.upstream in upstreams)
        self.routes = tuple(sorted(served, key=lambda route: len(route.prefix), reverse=True))
        self._by_segment: dict[bytes, list[Route]] = defaultdict(list)
        for route in self.routes:
            self._by_segment[_first_segment(route.prefix)].append(route)

    def find(self, path: bytes) -> Route | None:
        """Return the route of an encoded path, or None if no service answers it.

        Paths with `.` or `..` segments, also encoded ones, have no route, because services might
        interpret them differently.
        """
        for route in self._by_segment.get(_first_segment(path), ()):
            if route.matches(path):
                return None if _has_dot_segment(path) else route
        return None


def _first_segment(path: bytes) -> bytes:
    """Return the part between the first two slashes."""
    return path[1:].partition(b"/")[0]


def _has_dot_segment(path: bytes) -> bool:
    if b"." not in path and b"%" not in path:
        return False
    plain = path.lower().replace(b"%2e", b".").replace(b"%2f", b"/").replace(b"%5c", b"/")
    return any(segment in {b".", b".."} for segment in plain.split(b"/"))
