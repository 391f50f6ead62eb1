"""Which header fields pass the gateway (RFC 9110 §7.6.1), in both directions."""

from collections.abc import Iterable

from multidict import CIMultiDict

from libs.common.identity import PRINCIPAL_HEADER
from services.gateway.access.addresses import Origin

Fields = Iterable[tuple[bytes, bytes]]

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
"""How header fields begin that only services of ours send."""
_FROM_CLIENT = HOP_BY_HOP | {
    b"authorization",  # the principal header says who it is
    b"content-length",  # set again from the body
    b"expect",  # answered by our own server
    b"forwarded",
    b"host",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
    b"x-request-id",
}
_FROM_SERVICE = HOP_BY_HOP | {b"x-request-id"}


def _named_in_connection(fields: Fields) -> frozenset[bytes]:
    values = b",".join(value for name, value in fields if name == b"connection")
    return frozenset(token.strip().lower() for token in values.split(b","))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def to_service(
    fields: Fields,
    headers: dict[bytes, bytes],
    *,
    origin: Origin,
    request_id: str,
    principal: str | None,
    length: int | None,
) -> CIMultiDict[str]:
    """The header fields of the request to the service.

    `headers` are the same fields for look-ups, `principal` is the signed header value,
    `length` the declared length of the body in bytes.
    """
    dropped = _FROM_CLIENT
    if b"connection" in headers:
        dropped |= _named_in_connection(fields)
    kept = CIMultiDict(
        [
            (name.decode("latin-1"), _text(value))
            for name, value in fields
            if name not in dropped and not name.startswith(INTERNAL)
        ]
    )
    kept["x-request-id"] = request_id
    kept["x-forwarded-for"] = origin.forwarded_for
    kept["x-forwarded-proto"] = origin.scheme
    kept["x-forwarded-host"] = origin.host
    if principal is not None:
        kept[PRINCIPAL_HEADER] = principal
    if length is not None:
        kept["content-length"] = str(length)
    return kept


def to_client(fields: Fields, *, status: int, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """The header fields of the answer to the client."""
    lowered = [(name.lower(), value) for name, value in fields]
    dropped = _FROM_SERVICE | _named_in_connection(lowered)
    if status == 304:  # noqa: PLR2004 - its length is that of a body that does not come
        dropped |= {b"content-length"}
    kept = [
        (name, value)
        for name, value in lowered
        if name not in dropped and not name.startswith(INTERNAL)
    ]
    kept.append((b"x-request-id", request_id))
    return kept
