"""What the gateway says of a device that came to it with a certificate, for the bus to believe.

nats-server asks every client of a listener for a certificate, or none. So devices with one come
over TLS to the gateway, which puts this in the place of a device key (docs/decisions/0027). Signed
with the key of the principal header, and of use to nobody after some seconds.
"""

import time
from collections.abc import Callable

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from libs.common.identity.header import decode, decode_strictly, encode
from libs.common.tls import PeerCertificate

LIFETIME = 30.0
"""Seconds for which a pass is accepted: nats-server gives a log-in five."""
_PREFIX = "certificate."
_PURPOSE = b"thingway certificate pass\n"
"""Signed with it, so that no other thing that the key signs is a pass."""


class _Claims(msgspec.Struct):
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
        claims = _Claims(*certificate, self._clock() + LIFETIME)
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
            claims = msgspec.json.decode(payload, type=_Claims)
        except (ValueError, InvalidSignature, msgspec.DecodeError):
            return None
        if claims.expires <= self._clock():
            return None
        return PeerCertificate(claims.subject, claims.serial)
