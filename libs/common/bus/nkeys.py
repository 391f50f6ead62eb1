"""NKEYS: the Ed25519 key pairs that NATS uses for identities and signatures.

NATS encodes a key as base32 (no padding) of *prefix bytes, 32 key bytes, CRC-16/XMODEM
little-endian*. The prefix determines the first letter, which shows the type of key: `A…` an
account, `U…` a user, `N…` a server, `S…` a seed. Source: https://github.com/nats-io/nkeys
(`crc16.go`, `strkey.go`). The `nkeys` package on PyPI has had no release for years, hence this
module.
"""

import base64
import binascii
import enum
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

_SEED_PREFIX = 18 << 3
_KEY_BYTES = 32
_CRC_BYTES = 2
_SEED_PREFIX_BYTES = 2


class NkeyError(ValueError):
    """An invalid key: wrong type, wrong length or wrong checksum."""


class KeyKind(enum.IntEnum):
    """The type of a key; the value is its prefix byte."""

    ACCOUNT = 0
    SERVER = 13 << 3
    USER = 20 << 3


def _encode(data: bytes) -> str:
    checksum = binascii.crc_hqx(data, 0).to_bytes(_CRC_BYTES, "little")
    return base64.b32encode(data + checksum).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError) as exc:
        raise NkeyError("not a base32 text") from exc
    data, checksum = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
    if binascii.crc_hqx(data, 0) != int.from_bytes(checksum, "little"):
        raise NkeyError("the checksum of the key is wrong")
    return data


class KeyPair:
    """An Ed25519 key pair of one type."""

    def __init__(self, kind: KeyKind, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.kind = kind
        public = private.public_key().public_bytes_raw()
        self.public_key: str = _encode(bytes([kind]) + public)
        """The public key as NATS encodes it, e.g. `AB3Z…`."""

    @classmethod
    def create(cls, kind: KeyKind) -> Self:
        """Generate a random key pair."""
        return cls(kind, Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: str) -> Self:
        """Return the key pair of a seed (`SA…`, `SU…`); raise `NkeyError`."""
        data = _decode(seed)
        if len(data) != _SEED_PREFIX_BYTES + _KEY_BYTES or data[0] & 0xF8 != _SEED_PREFIX:
            raise NkeyError("not a seed")
        # The byte of the type is spread over two, so that a seed begins with S and its letter.
        kind = (data[0] & 0x07) << 5 | (data[1] & 0xF8) >> 3
        try:
            return cls(KeyKind(kind), Ed25519PrivateKey.from_private_bytes(data[2:]))
        except ValueError as exc:
            raise NkeyError("a seed of an unknown kind") from exc

    @property
    def seed(self) -> str:
        """Return the private key as NATS encodes it (`SA…`, `SU…`). It is a secret."""
        head = bytes([_SEED_PREFIX | self.kind >> 5, (self.kind & 0x1F) << 3])
        return _encode(head + self._private.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the Ed25519 signature of `data` (64 bytes)."""
        return self._private.sign(data)


def verify(public_key: str, kind: KeyKind, data: bytes, signature: bytes) -> bool:
    """Return whether the owner of `public_key` signed `data`.

    Raises `NkeyError` if `public_key` is not a valid key of type `kind`.
    """
    raw = _decode(public_key)
    if len(raw) != 1 + _KEY_BYTES or raw[0] != kind:
        raise NkeyError(f"not the public key of a {kind.name.lower()}")
    try:
        Ed25519PublicKey.from_public_bytes(raw[1:]).verify(signature, data)
    except InvalidSignature:
        return False
    return True
