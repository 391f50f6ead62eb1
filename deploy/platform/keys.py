"""Secrets of an installation: passwords, MongoDB's key file, internal key pairs."""

import base64
import secrets

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from libs.common.bus.nkeys import KeyKind, KeyPair

_ED25519_BYTES = 32


def new_password() -> str:
    """Return a random password of 192 bits without characters that need quoting.

    It starts with a letter, because nats-server parses a bare number as a number.
    """
    return "p" + secrets.token_urlsafe(24)


def new_mongo_key() -> str:
    """Return the content of MongoDB's key file (base64)."""
    return base64.b64encode(secrets.token_bytes(96)).decode()


def new_private_key() -> str:
    """Return an Ed25519 private key: 32 raw bytes, base64url without padding."""
    return _base64url(secrets.token_bytes(_ED25519_BYTES))


def public_key(private_key: str) -> str:
    """Return the public key of a private key in the same encoding."""
    raw = base64.urlsafe_b64decode(private_key + "=" * (-len(private_key) % 4))
    public = Ed25519PrivateKey.from_private_bytes(raw).public_key()
    return _base64url(public.public_bytes_raw())


def new_account_seed() -> str:
    """Return the seed of a NATS account key (`SA...`), which signs user JWTs."""
    return KeyPair.create(KeyKind.ACCOUNT).seed


def account_public_key(seed: str) -> str:
    """Return the public account key (`A...`) of a seed, which NATS trusts as issuer."""
    return KeyPair.from_seed(seed).public_key


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
