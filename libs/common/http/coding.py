"""Which content coding a client asks for (RFC 9110, 12.5.3)."""

from functools import lru_cache

PACKET = 1400
"""Bytes that travel in one packet: an answer of so many is not sooner there for being smaller."""
CODINGS = {b"gzip": 31, b"deflate": 15}
"""Codings by the window that zlib has for them, the better one first."""


@lru_cache(maxsize=256)
def wanted(accept: bytes) -> bytes | None:
    """The coding that an `Accept-Encoding` asks for, None for a plain answer."""
    weights = {}
    for entry in accept.lower().split(b","):
        name, _, weight = entry.partition(b";")
        weights[name.strip()] = _weight(weight)
    for coding in CODINGS:
        if weights.get(coding, weights.get(b"*", 0.0)) > 0:
            return coding
    return None


def _weight(parameter: bytes) -> float:
    """A weight of `q=…`; 1 without one, 0 when it is no number."""
    name, _, value = parameter.strip().partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
