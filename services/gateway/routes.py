"""The routing table: which service answers a path, and what a caller must show for it.

A new public API is one more line of `ROUTES`; operations of the management API are also
served below `API`.
"""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any
from urllib.parse import parse_qs

from libs.common.contracts.frames import LARGEST_HOOK
from libs.common.contracts.limits import LARGEST_FILE
from libs.common.identity import Kind

LONGEST_POLL = 600.0
"""Seconds of `wait` that are granted on top of the time limit."""


class Credential(Enum):
    """What a caller proves itself with."""

    NONE = "none"
    TOKEN = "token"  # noqa: S105 - the word, not one
    """`Authorization: Bearer`; of the open API also the query parameter `access_token`."""
    DEVICE_KEY = "device_key"
    """HTTP Basic with SN and key; the SN is the first segment after the prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One line of the table."""

    name: str
    """For metrics."""
    prefix: bytes
    """How the path begins, as it was sent; when it does not end in a slash, the whole path, which
    may have one more."""
    besides: bytes | None = None
    """How the path does not go on: that part of the API is on another line, or closed."""
    upstream: str
    """The service that answers."""
    rewrite: bytes | None = None
    """What the service is asked for instead of the prefix."""
    credential: Credential
    kinds: frozenset[Kind] = frozenset()
    """Which principals may call."""
    signs_in: bool = False
    """Whether credentials are tried here, so that the stricter limit per address holds."""
    long_poll: bytes | None = None
    """How a path ends that answers only after `wait` seconds (a query parameter)."""
    secret_path: bool = False
    """Whether the path is all that a caller shows, so that each path is counted by itself."""
    max_body: int | None = None
    """Bytes of a body, where they are not those of `THINGWAY_MAX_BODY`."""
    passes_login: bool = False
    """Whether the service looks at `Authorization` itself: the caller is nobody of ours."""

    def matches(self, path: bytes) -> bool:
        """Tell whether `path` belongs here."""
        if not self.prefix.endswith(b"/"):
            return path.removesuffix(b"/") == self.prefix
        if not path.startswith(self.prefix):
            return False
        return self.besides is None or not path.startswith(self.besides, len(self.prefix))

    @property
    def takes_query_token(self) -> bool:
        """Whether the token may be a query parameter, which reaches the logs of proxies."""
        return Kind.APPLICATION in self.kinds

    def target(self, path: bytes) -> bytes:
        """The path that the service is asked for."""
        return path if self.rewrite is None else self.rewrite + path[len(self.prefix) :]

    def wait(self, path: bytes, query: bytes) -> float:
        """Seconds that a long poll may take, 0 for all other requests."""
        if self.long_poll is None or b"wait=" not in query or not path.endswith(self.long_poll):
            return 0.0
        values = parse_qs(query.decode("latin-1")).get("wait", [])
        return max(map(_seconds, values), default=0.0)


API = b"/api/v1"
"""What existing consoles write before every path of the management API."""


def _seconds(text: str) -> float:
    try:
        return min(max(0.0, float(text)), LONGEST_POLL)
    except ValueError:
        return 0.0


def _open(prefix: bytes, upstream: str, **options: Any) -> tuple[Route, ...]:
    """Lines for a part of the management API that needs no token; one that comes is not read.

    `options` are further fields of `Route`.
    """
    name = "sign-in" if options.get("signs_in") else "open"
    route = Route(
        name=name, prefix=prefix, upstream=upstream, credential=Credential.NONE, **options
    )
    return _twice(route)


def _console(prefix: bytes, upstream: str, *, besides: bytes | None = None) -> tuple[Route, ...]:
    """Lines for the users' part of the management API, with the bare `prefix` and below it."""
    lines = (
        Route(
            name="console",
            prefix=path,
            besides=besides,
            upstream=upstream,
            credential=Credential.TOKEN,
            kinds=frozenset({Kind.USER}),
        )
        for path in (prefix, prefix + b"/")
    )
    return tuple(route for line in lines for route in _twice(line))


def _twice(route: Route) -> tuple[Route, Route]:
    return route, replace(route, prefix=API + route.prefix, rewrite=route.prefix)


_DEVICE = Route(
    name="device",
    prefix=b"/device/openapi/v1/",
    upstream="device",
    credential=Credential.TOKEN,
    kinds=frozenset({Kind.APPLICATION}),
)
_LIMITS = replace(_DEVICE, prefix=b"/device/openapi/v1/limits", upstream="auth")
"""The one operation of the device open API that is not `device`'s."""

ROUTES = (
    Route(
        name="token",
        prefix=b"/oauth/token",
        upstream="auth",
        credential=Credential.NONE,
        signs_in=True,
    ),
    _DEVICE,
    _LIMITS,
    replace(_LIMITS, prefix=b"/device/openapi/v1.0/limits", rewrite=_LIMITS.prefix),
    replace(_DEVICE, prefix=b"/device/openapi/v1.0/", rewrite=_DEVICE.prefix),
    Route(
        name="ingest",
        prefix=b"/ingest/v1/",
        upstream="device",
        credential=Credential.DEVICE_KEY,
        kinds=frozenset({Kind.DEVICE}),
        long_poll=b"/commands",
    ),
    *_open(b"/oauth2/token", "auth", signs_in=True),
    *_open(b"/user/register", "auth", signs_in=True),
    *_open(b"/user/status", "auth", signs_in=True),
    *_console(b"/user", "auth"),
    *_console(b"/application", "auth"),
    *_console(b"/audit", "auth"),
    *_console(b"/tenant", "auth"),
    *_console(b"/mqtt/web/credentials", "auth"),
    *_console(b"/mqtt/broker-info", "auth"),
    *_console(b"/device", "device", besides=b"openapi/"),
    *_console(b"/device-batch", "device"),
    *_console(b"/device-group", "device"),
    *_console(b"/alarms", "device"),
    *_console(b"/alarm-rules", "device"),
    *_console(b"/entity", "device"),
    *_console(b"/system", "device"),
    *_console(b"/product", "device"),
    *_console(b"/product-template", "device"),
    *_console(b"/blueprint-library-setting", "device"),
    *_console(b"/rps", "device"),
    *_console(b"/integration", "management", besides=b"hooks/"),
    *_open(b"/integration/hooks/", "management", secret_path=True, max_body=LARGEST_HOOK),
    *_console(b"/dashboard", "management"),
    *_console(b"/canvas", "management"),
    *_console(b"/resource", "management"),
    *_open(b"/resource/uploads/", "management", max_body=LARGEST_FILE),
    *_open(b"/resource/files/", "management"),
    *_open(b"/public/", "management"),
    *_console(b"/credentials", "workflow"),
    *_console(b"/alarm-notifications", "workflow"),
    *_console(b"/workflow", "workflow", besides=b"hooks/"),
    *_open(b"/workflow/hooks/", "workflow", secret_path=True),
    *_open(b"/workflow-http-in/", "workflow", secret_path=True, passes_login=True),
)


class RouteTable:
    """Finds the route of a path: the longest prefix wins.

    The lines of services that are not among `upstreams` do not count, so their paths are
    answered as unknown ones are.
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
        """The route of `path` as it was sent, None when no service answers it.

        A path with `.` or `..` segments, encoded ones too, has none: what it means would
        depend on who reads it.
        """
        for route in self._by_segment.get(_first_segment(path), ()):
            if route.matches(path):
                return None if _has_dot_segment(path) else route
        return None


def _first_segment(path: bytes) -> bytes:
    """What stands between the first two slashes."""
    return path[1:].partition(b"/")[0]


def _has_dot_segment(path: bytes) -> bool:
    if b"." not in path and b"%" not in path:
        return False
    plain = path.lower().replace(b"%2e", b".").replace(b"%2f", b"/").replace(b"%5c", b"/")
    return any(segment in {b".", b".."} for segment in plain.split(b"/"))
