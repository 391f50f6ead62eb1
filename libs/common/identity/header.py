"""The internal header: a principal, signed by the gateway, valid for seconds.

Ed25519, so that a service can check the header and cannot make one. Signing and
checking cost 30-100 µs; both ends therefore keep what they signed or checked while it
is valid, and a request costs a dictionary look-up (see docs/decisions/0004).

A pass (`PassSigner`) is what the gateway says of a device that came to it with a certificate.
nats-server asks every client of a listener for a certificate, or none. So devices with one connect
over TLS to the gateway, which puts a pass in the place of a device key (docs/decisions/0027). It is
signed with the key of the principal header, and of use to nobody after some seconds.
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
from libs.common.recent import Recent
from libs.common.tls import PeerCertificate

PRINCIPAL_HEADER = "x-thingway-principal"
TOKEN_HEADER = "x-thingway-token"  # noqa: S105 - the name of a field
"""With a WebSocket: the SHA-256 of the token, under which its state stands in Redis."""
LIFETIME = 30.0
"""Seconds for which a signed header is accepted."""
REUSE = 10.0
"""Seconds for which the gateway sends the same signed header again."""
CACHED = 10_000
"""Most headers kept at either end."""


class _Claims(msgspec.Struct, rename="camel"):
    principal: Principal
    expires: float


def encode(raw: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """The bytes that `encode` was given; ValueError for what it does not make."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def decode_strictly(text: str) -> bytes:
    """The bytes of `text`; raise `ValueError` unless it is their one and only spelling.

    The decoder passes over strange characters and over the bits that the last one has too many.
    """
    raw = decode(text)
    if encode(raw) != text:
        raise ValueError("this is not base64url as it is made here")
    return raw


def make_keys() -> tuple[str, str]:
    """Make a key pair: (private, public), both raw Ed25519 in base64url without padding."""
    private = Ed25519PrivateKey.generate()
    raw_private = private.private_bytes(
        serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
    return encode(raw_private), encode(private.public_key().public_bytes_raw())


class HeaderSigner:
    """Makes the header; only the gateway has the key."""

    def __init__(self, private_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(decode(private_key))
        self._clock = clock
        self._signed: Recent[Principal, tuple[float, str]] = Recent(CACHED)

    def sign(self, principal: Principal) -> str:
        """Return the header value for `principal`, at least 20 s before it expires."""
        now = self._clock()
        kept = self._signed.get(principal)
        if kept and kept[0] > now:
            return kept[1]
        payload = msgspec.json.encode(_Claims(principal, now + LIFETIME))
        value = f"{encode(payload)}.{encode(self._key.sign(payload))}"
        self._signed.put(principal, (now + REUSE, value))
        return value


class HeaderVerifier:
    """Checks the header; every service behind the gateway has the public key."""

    def __init__(self, public_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(decode(public_key))
        self._clock = clock
        self._verified: Recent[str, _Claims] = Recent(CACHED)

    def verify(self, value: str | None) -> Principal:
        """Return the principal of a header value; raise `Unauthenticated` when it is not ours."""
        if not value:
            raise Unauthenticated("this service answers only through the gateway")
        claims = self._verified.get(value)
        if claims is None:
            claims = self._check(value)
            self._verified.put(value, claims)
        if claims.expires <= self._clock():
            self._verified.pop(value)
            raise Unauthenticated("the principal header has expired")
        return claims.principal

    def _check(self, value: str) -> _Claims:
        try:
            payload, signature = (decode_strictly(part) for part in value.split("."))
            self._key.verify(signature, payload)
            return msgspec.json.decode(payload, type=_Claims)
        except (ValueError, InvalidSignature, msgspec.DecodeError) as error:
            raise Unauthenticated("the principal header is not the gateway's") from error


PASS_LIFETIME = 30.0
"""Seconds for which a pass is accepted: nats-server gives a log-in five."""
_PREFIX = "certificate."
_PURPOSE = b"thingway certificate pass\n"
"""Signed with it, so that no other thing that the key signs is a pass."""


class _PassClaims(msgspec.Struct):
    subject: str
    serial: str
    expires: float


class PassSigner:
    """Makes passes; only the gateway has the key."""

    def __init__(self, private_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(decode(private_key))
        self._clock = clock

    def sign(self, certificate: PeerCertificate) -> str:
        """The password with which the device of `certificate` logs in."""
        claims = _PassClaims(*certificate, self._clock() + PASS_LIFETIME)
        payload = msgspec.json.encode(claims)
        return f"{_PREFIX}{encode(payload)}.{encode(self._key.sign(_PURPOSE + payload))}"


class PassVerifier:
    """Reads passes."""

    def __init__(self, public_key: str, clock: Callable[[], float] = time.time) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(decode(public_key))
        self._clock = clock

    def verify(self, password: str) -> PeerCertificate | None:
        """The certificate that a password stands for; None when it is no pass, or an old one."""
        if not password.startswith(_PREFIX):
            return None
        try:
            payload, signature = map(decode_strictly, password.removeprefix(_PREFIX).split("."))
            self._key.verify(signature, _PURPOSE + payload)
            claims = msgspec.json.decode(payload, type=_PassClaims)
        except (ValueError, InvalidSignature, msgspec.DecodeError):
            return None
        if claims.expires <= self._clock():
            return None
        return PeerCertificate(claims.subject, claims.serial)
