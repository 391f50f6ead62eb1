"""The internal header: a principal, signed by the gateway, valid for seconds.

With Ed25519, a service can verify the header but not create one. Signing and verifying cost 30-100
µs; both sides therefore cache valid headers, and a request costs a dictionary look-up
(docs/decisions/0004).
A pass (`CertificatePassSigner`) proves that the gateway has verified the certificate of a device. A
listener of nats-server requests a certificate from every client, or from none. Devices with a
certificate therefore connect over TLS to the gateway, which replaces the device key by a pass
(docs/decisions/0027). A pass is signed with the key of the principal header and expires after
`PASS_LIFETIME_SECONDS`.
"""

import base64
import time
from collections.abc import Callable

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from libs.common.errors import Unauthenticated
from libs.common.identity.principal import Principal
from libs.common.lru_cache import LruCache
from libs.common.tls import PeerCertificate

PRINCIPAL_HEADER = "x-thingway-principal"
TOKEN_HEADER = "x-thingway-token"  # noqa: S105 - a header name
"""Sent with a WebSocket: the SHA-256 of the token, which locates its state in Redis."""
HEADER_LIFETIME_SECONDS = 30.0
"""Seconds for which a signed header is accepted."""
HEADER_REUSE_SECONDS = 10.0
"""Seconds for which the gateway reuses a signed header."""
MAX_CACHED_HEADERS = 10_000
"""Maximum cached headers on either side."""


class _HeaderClaims(msgspec.Struct, rename="camel"):
    principal: Principal
    expires: float


def encode_base64url(raw: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Return the bytes of base64url without padding; raise ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def decode_base64url_strictly(text: str) -> bytes:
    """Return the bytes of `text`; raise `ValueError` unless `encode_base64url` reverses it.

    The decoder ignores invalid characters and surplus bits of the last character.
    """
    raw = decode_base64url(text)
    if encode_base64url(raw) != text:
        raise ValueError("not canonical base64url")
    return raw


def generate_keys() -> tuple[str, str]:
    """Return a new (private, public) Ed25519 key pair in base64url without padding."""
    private = Ed25519PrivateKey.generate()
    raw_private = private.private_bytes(
        serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
    return encode_base64url(raw_private), encode_base64url(private.public_key().public_bytes_raw())


class HeaderSigner:
    """Creates the header; only the gateway has the private key."""

    def __init__(self, private_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(decode_base64url(private_key))
        self._clock = clock
        self._signed: LruCache[Principal, tuple[float, str]] = LruCache(MAX_CACHED_HEADERS)

    def sign(self, principal: Principal) -> str:
        """Return the header value for `principal`, valid for at least 20 s."""
        now = self._clock()
        cached = self._signed.get(principal)
        if cached and cached[0] > now:
            return cached[1]
        payload = msgspec.json.encode(_HeaderClaims(principal, now + HEADER_LIFETIME_SECONDS))
        value = f"{encode_base64url(payload)}.{encode_base64url(self._key.sign(payload))}"
        self._signed.put(principal, (now + HEADER_REUSE_SECONDS, value))
        return value


class HeaderVerifier:
    """Verifies the header; every service behind the gateway has the public key."""

    def __init__(self, public_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(decode_base64url(public_key))
        self._clock = clock
        self._verified: LruCache[str, _HeaderClaims] = LruCache(MAX_CACHED_HEADERS)

    def verify(self, value: str | None) -> Principal:
        """Return the principal of a header value; raise `Unauthenticated`."""
        if not value:
            raise Unauthenticated("this service accepts requests only from the gateway")
        claims = self._verified.get(value)
        if claims is None:
            claims = self._check(value)
            self._verified.put(value, claims)
        if claims.expires <= self._clock():
            self._verified.pop(value)
            raise Unauthenticated("the principal header has expired")
        return claims.principal

    def _check(self, value: str) -> _HeaderClaims:
        try:
            payload, signature = (decode_base64url_strictly(part) for part in value.split("."))
            self._key.verify(signature, payload)
            return msgspec.json.decode(payload, type=_HeaderClaims)
        except (ValueError, InvalidSignature, msgspec.DecodeError) as error:
            raise Unauthenticated("the principal header was not signed by the gateway") from error


PASS_LIFETIME_SECONDS = 30.0
"""Seconds for which a pass is accepted; nats-server waits five for a login."""
_PREFIX = "certificate."
_PASS_PURPOSE = b"thingway certificate pass\n"
"""Prefix of the signed content, so that other content signed with the key is no pass."""


class _PassClaims(msgspec.Struct):
    subject: str
    serial: str
    expires: float


class CertificatePassSigner:
    """Creates passes; only the gateway has the private key."""

    def __init__(self, private_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(decode_base64url(private_key))
        self._clock = clock

    def sign(self, certificate: PeerCertificate) -> str:
        """Return the password with which the device of `certificate` logs in."""
        claims = _PassClaims(*certificate, self._clock() + PASS_LIFETIME_SECONDS)
        payload = msgspec.json.encode(claims)
        signature = self._key.sign(_PASS_PURPOSE + payload)
        return f"{_PREFIX}{encode_base64url(payload)}.{encode_base64url(signature)}"


class CertificatePassVerifier:
    """Verifies passes."""

    def __init__(self, public_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(decode_base64url(public_key))
        self._clock = clock

    def verify(self, password: str) -> PeerCertificate | None:
        """Return the certificate that a pass proves; None if the password is no valid pass."""
        if not password.startswith(_PREFIX):
            return None
        try:
            payload, signature = map(
                decode_base64url_strictly, password.removeprefix(_PREFIX).split(".")
            )
            self._key.verify(signature, _PASS_PURPOSE + payload)
            claims = msgspec.json.decode(payload, type=_PassClaims)
        except (ValueError, InvalidSignature, msgspec.DecodeError):
            return None
        if claims.expires <= self._clock():
            return None
        return PeerCertificate(claims.subject, claims.serial)
