"""The routing table: which service answers a path, and what a caller must show for it.

A new public API is one more line of `ROUTES`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from libs.common.identity import Kind


class Credential(Enum):
    """What a caller proves itself with."""

    NONE = "none"
    TOKEN = "token"  # noqa: S105 - the word, not one
    """`Authorization: Bearer`, or the query parameter `access_token`."""
    DEVICE_KEY = "device_key"
    """HTTP Basic with SN and key; the SN is the first segment after the prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One line of the table."""

    name: str
    """For metrics."""
    prefix: bytes
    """How the path begins, as it was sent; the whole path when it does not end in a slash."""
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

    def matches(self, path: bytes) -> bool:
        """Tell whether `path` belongs here."""
        return path.startswith(self.prefix) if self.prefix.endswith(b"/") else path == self.prefix

    def target(self, path: bytes) -> bytes:
        """The path that the service is asked for."""
        return path if self.rewrite is None else self.rewrite + path[len(self.prefix) :]


ROUTES = (
    Route(
        name="token",
        prefix=b"/oauth/token",
        upstream="auth",
        credential=Credential.NONE,
        signs_in=True,
    ),
    Route(
        name="device",
        prefix=b"/device/openapi/v1/",
        upstream="device",
        credential=Credential.TOKEN,
        kinds=frozenset({Kind.APPLICATION}),
    ),
    Route(
        name="device",
        prefix=b"/device/openapi/v1.0/",
        rewrite=b"/device/openapi/v1/",
        upstream="device",
        credential=Credential.TOKEN,
        kinds=frozenset({Kind.APPLICATION}),
    ),
    Route(
        name="ingest",
        prefix=b"/ingest/v1/",
        upstream="device",
        credential=Credential.DEVICE_KEY,
        kinds=frozenset({Kind.DEVICE}),
        long_poll=b"/commands",
    ),
)


class RouteTable:
    """Finds the route of a path: the longest prefix wins."""

    def __init__(self, routes: Iterable[Route] = ROUTES) -> None:
        self.routes = tuple(sorted(routes, key=lambda route: len(route.prefix), reverse=True))

    def find(self, path: bytes) -> Route | None:
        """The route of `path` as it was sent, None when no service answers it.

        A path with `.` or `..` segments, encoded ones too, has none: what it means would
        depend on who reads it.
        """
        for route in self.routes:
            if route.matches(path):
                return None if _has_dot_segment(path) else route
        return None


def _has_dot_segment(path: bytes) -> bool:
    if b"." not in path and b"%" not in path:
        return False
    plain = path.lower().replace(b"%2e", b".").replace(b"%2f", b"/").replace(b"%5c", b"/")
    return any(segment in {b".", b".."} for segment in plain.split(b"/"))
