"""Generated secrets of applications, integrations and consoles, stored as hashes."""

import hashlib
import hmac
import secrets

_DUMMY_HASH = hashlib.sha256(secrets.token_bytes(32)).hexdigest()


def generate_secret() -> str:
    """Return a client secret of 256 random bits in 43 characters."""
    return secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """Return the SHA-256 of a secret in hex.

    Slow, salted hashes protect secrets that users choose. These secrets have 256 random bits:
    they cannot be guessed, no two are equal, and a fast hash keeps many wrong logins cheap.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def matches_secret_hash(secret: str, stored: str | None) -> bool:
    """Return whether `secret` has the hash `stored`; False if `stored` is None.

    Both cases take the same time.
    """
    is_same = hmac.compare_digest(hash_secret(secret), stored or _DUMMY_HASH)
    return is_same and stored is not None
