"""Secrets of applications: made here, kept as a hash."""

import hashlib
import hmac
import secrets

_NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()


def new_secret() -> str:
    """Make a client secret of 256 random bits, 43 characters."""
    return secrets.token_urlsafe(32)


def secret_hash(secret: str) -> str:
    """The SHA-256 of a secret in hex.

    A slow, salted hash defends secrets that people choose. Ours are 256 random bits: nobody
    can try them all, no two are alike, and a fast hash keeps a flood of wrong log-ins cheap.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def secret_matches(secret: str, stored: str | None) -> bool:
    """Tell whether `secret` has the hash `stored`: the same work when there is none (None)."""
    same = hmac.compare_digest(secret_hash(secret), stored or _NOBODY)
    return same and stored is not None
