"""The head of a WebSocket handshake (RFC 6455, 4.1), parsed and rewritten."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_plus

from libs.common.http.request import LONGEST_CREDENTIAL, bearer_token
from services.gateway.access.addresses import Origin
from services.gateway.proxy.headers import to_service
from services.gateway.upstream.connection import Field

PARAMETER = "authorization"
"""The query parameter with the token, because browsers cannot set a header here."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """The handshake of a client."""

    method: bytes
    path: bytes
    query: bytes
    fields: list[Field]

    def field(self, name: bytes) -> bytes | None:
        """Return the last value of a header field."""
        return next((value for found, value in reversed(self.fields) if found == name), None)

    @property
    def token(self) -> str | None:
        """Return the token of the header, else of the query, with or without `Bearer `."""
        found = bearer_token(self.field(b"authorization"))
        if found is not None:
            return found
        for part in self.query.decode("latin-1").split("&"):
            name, _, value = part.partition("=")
            if unquote_plus(name).lower() == PARAMETER:
                text = unquote_plus(value)[:LONGEST_CREDENTIAL].strip()
                word, _, rest = text.partition(" ")
                return (rest.strip() if word.lower() == "bearer" else text) or None
        return None


def read_handshake(head: bytes) -> Handshake:
    """Parse a head as the server writes it: one field per line, names in lower case."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, _ = first.split(b" ")
    path, _, query = target.partition(b"?")
    fields = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    return Handshake(method, path, query, fields)


def to_upstream(
    handshake: Handshake,
    *,
    path: bytes,
    host: str,
    identity: Mapping[str, str],
    origin: Origin,
    request_id: str,
) -> bytes:
    """Return the head for the service, without the token, with `identity` as fields."""
    kept = to_service(handshake.fields, origin=origin, request_id=request_id)
    fields = [
        (b"host", host.encode()),
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        *(field for field in kept if field[0] not in _DROPPED),
        *((name.encode(), value.encode()) for name, value in identity.items()),
    ]
    lines = b"".join(b"%s: %s\r\n" % field for field in fields)
    return b"GET %s HTTP/1.1\r\n%s\r\n" % (path, lines)


_DROPPED = frozenset({b"cookie", b"sec-websocket-extensions"})
"""Dropped header fields; compression extensions would cost each idle socket its buffers."""
