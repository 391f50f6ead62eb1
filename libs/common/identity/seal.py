"""Secrets that have to be used again, and are therefore kept encrypted and not hashed.

AES-256-GCM under a key of the service's settings: what a dump of the database or a log of
its commands shows is of no use without that key. Each text is bound to its context (whose it
is), so that one cannot be put in the place of another.
"""

import base64
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


class SealBroken(Exception):
    """A text that was not sealed with this key and for this context."""


class Seal:
    """Seals and opens texts with one key (32 bytes, base64url without padding)."""

    def __init__(self, key: str) -> None:
        self._cipher = AESGCM(base64.urlsafe_b64decode(key + "="))

    def seal(self, text: str, context: str) -> str:
        """The text, encrypted."""
        nonce = secrets.token_bytes(_NONCE)
        sealed = self._cipher.encrypt(nonce, text.encode(), context.encode())
        return base64.urlsafe_b64encode(nonce + sealed).decode()

    def open(self, sealed: str, context: str) -> str:
        """The text again; raise `SealBroken`."""
        try:
            raw = base64.urlsafe_b64decode(sealed)
            return self._cipher.decrypt(raw[:_NONCE], raw[_NONCE:], context.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise SealBroken("the key or the context is another one") from error
