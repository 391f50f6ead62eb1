"""Reads credentials off a request: bearer token, token in the query, HTTP Basic."""

import base64
import binascii
from urllib.parse import unquote_plus

LONGEST = 4096
"""Characters of a credential that are looked at; ours have 43."""
_PARAMETER = "access_token"


def _after_scheme(header: bytes | None, scheme: bytes) -> str | None:
    if not header or len(header) > LONGEST:
        return None
    word, _, value = header.strip().partition(b" ")
    if word.lower() != scheme:
        return None
    return value.strip().decode("latin-1") or None


def bearer_token(header: bytes | None) -> str | None:
    """The token of `Authorization: Bearer` (RFC 6750 §2.1); the scheme's case is free."""
    return _after_scheme(header, b"bearer")


def basic_login(header: bytes | None) -> tuple[str, str] | None:
    """User and password of `Authorization: Basic` (RFC 7617)."""
    encoded = _after_scheme(header, b"basic")
    if encoded is None:
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (user, password) if user and colon else None


def take_query_token(query: bytes) -> tuple[str | None, bytes]:
    """The value of `access_token` (RFC 6750 §2.3), and the query without that parameter."""
    if b"access" not in query and b"%" not in query:
        return None, query
    token, kept = None, []
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) == _PARAMETER:
            token = unquote_plus(value)[:LONGEST] or token
        else:
            kept.append(part)
    return token, "&".join(kept).encode("latin-1")
