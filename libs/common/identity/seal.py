"""Encryption of secrets that must be decrypted later, and hence cannot be hashed.

AES-256-GCM with a key of the service's settings: without the key, a database dump or a command log
reveals no secret. The context (the owner of the secret) is authenticated, so that a text of one
owner cannot replace that of another.
"""

import base64
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


class SealBroken(Exception):
    """A text that was not sealed with this key and context."""


class Seal:
    """Encrypts and decrypts texts with one key (32 bytes, base64url without padding)."""

    def __init__(self, key: str) -> None:
        self._cipher = AESGCM(base64.urlsafe_b64decode(key + "="))

    def seal(self, text: str, context: str) -> str:
        """Return the encrypted text."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, text.encode(), context.encode())
        return base64.urlsafe_b64encode(nonce + sealed).decode()

    def open(self, sealed: str, context: str) -> str:
        """Return the decrypted text; raise `SealBroken`."""
        try:
            raw = base64.urlsafe_b64decode(sealed)
            return self._cipher.decrypt(
                raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode()
            ).decode()
        except (InvalidTag, ValueError) as error:
            raise SealBroken("the key or the context is wrong") from error
