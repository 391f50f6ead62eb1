"""The header fields that the gateway forwards in each direction (RFC 9110 §7.6.1)."""

from collections.abc import Iterable

from services.gateway.access.addresses import Origin
from services.gateway.upstream.connection import Field

Fields = Iterable[Field]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
INTERNAL = b"x-thingway-"
"""Prefix of header fields that only our services send."""
_FROM_CLIENT = HOP_BY_HOP | {
    b"authorization",  # replaced by the principal header
    b"content-encoding",  # decoded by the gateway
    b"content-length",  # set again with the body
    b"expect",  # answered by the gateway's server
    b"forwarded",
    b"host",
    b"traceparent",  # set by the gateway
    b"tracestate",
    b"baggage",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
    b"x-request-id",
}
_FROM_SERVICE = HOP_BY_HOP | {b"x-request-id"}
_BODYLESS = frozenset({204, 304})
"""Statuses without a body, whose length must not be sent."""


def _kept(fields: Fields, dropped: frozenset[bytes]) -> list[Field]:
    """Return the fields except dropped, internal and connection-specific ones."""
    kept, named = [], []
    for field in fields:
        name = field[0]
        if name not in dropped:
            if not name.startswith(INTERNAL):
                kept.append(field)
        elif name == b"connection":
            named.append(field[1])
    if named:
        tokens = {token.strip().lower() for token in b",".join(named).split(b",")}
        kept = [field for field in kept if field[0] not in tokens]
    return kept


def to_service(fields: Fields, *, origin: Origin, request_id: str) -> list[Field]:
    """Return the header of the request to the service, with names in lower case."""
    kept = _kept(fields, _FROM_CLIENT)
    kept += (
        (b"x-request-id", request_id.encode()),
        (b"x-real-ip", origin.address.encode("latin-1")),
        (b"x-forwarded-for", origin.forwarded_for.encode("latin-1")),
        (b"x-forwarded-proto", origin.scheme.encode("latin-1")),
        (b"x-forwarded-host", origin.host.encode("latin-1")),
    )
    return kept


def to_client(fields: Fields, *, status: int, request_id: str) -> list[Field]:
    """Return the header fields of the answer to the client, with names in lower case."""
    bodyless = status in _BODYLESS
    kept = _kept(fields, _FROM_SERVICE | {b"content-length"} if bodyless else _FROM_SERVICE)
    kept.append((b"x-request-id", request_id.encode()))
    return kept
