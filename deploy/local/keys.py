"""The secrets of one installation: passwords, keys, and the NATS account key."""

import base64
import binascii
import secrets

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED_PREFIX = 18 << 3
_ACCOUNT_PREFIX = 0
"""Prefix bytes of the NATS nkey format: seeds begin with S, account keys with A."""
_ED25519_BYTES = 32


def new_password() -> str:
    """A password of 192 random bits that needs no quoting in URLs or configurations."""
    return secrets.token_urlsafe(24)


def new_key_file() -> str:
    """Content of MongoDB's key file, which takes base64 only."""
    return base64.b64encode(secrets.token_bytes(96)).decode()


def new_private_key() -> str:
    """An Ed25519 private key: 32 raw bytes, base64url without padding."""
    return _base64url(secrets.token_bytes(_ED25519_BYTES))


def public_key(private_key: str) -> str:
    """The public half of `new_private_key()`, in the same encoding."""
    padding = "=" * (-len(private_key) % 4)
    raw = base64.urlsafe_b64decode(private_key + padding)
    return _base64url(_public_bytes(raw))


def new_account_seed() -> str:
    """The seed of a NATS account key (`SA...`), which signs user JWTs."""
    prefix = bytes([_SEED_PREFIX | _ACCOUNT_PREFIX >> 5, (_ACCOUNT_PREFIX & 31) << 3])
    return _with_checksum(prefix + secrets.token_bytes(_ED25519_BYTES))


def account_public_key(seed: str) -> str:
    """The public account key (`A...`) of a seed, which NATS trusts as issuer."""
    padding = "=" * (-len(seed) % 8)
    raw = base64.b32decode(seed + padding)[2 : 2 + _ED25519_BYTES]
    return _with_checksum(bytes([_ACCOUNT_PREFIX]) + _public_bytes(raw))


def _public_bytes(private: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def _with_checksum(payload: bytes) -> str:
    checksum = binascii.crc_hqx(payload, 0).to_bytes(2, "little")
    return base64.b32encode(payload + checksum).decode().rstrip("=")


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
