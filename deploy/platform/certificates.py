"""Authorities of an installation's own, and the certificates that they issue (X.509, PEM).

Two of them: one proves the servers to clients, the other devices to the gateway.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.platform.errors import CommandError
from deploy.platform.files import make_private_directory, write_private
from deploy.platform.nats import ServerFiles
from deploy.platform.state import State

DEVICES = "devices_authority"
"""The secret of an installation that `device_authority` is."""
AUTHORITY_DAYS = 3650
SERVER_DAYS = 90
RENEW_DAYS = 30
"""A server's certificate is renewed when it has fewer days left."""
_SKEW = timedelta(hours=1)
"""Certificates begin earlier by this: not every clock goes right."""
_LONGEST_NAME = 64
"""Characters of a common name (X.520)."""


def new_authority(name: str) -> str:
    """Make an authority: its private key and its own certificate, one after the other."""
    key = _new_key()
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _key_pem(key) + _pem(certificate)


@dataclass(frozen=True)
class Issued:
    """A certificate for a device."""

    serial: str
    """Hexadecimal, as TLS tells it of a client."""
    expires: int
    """When it ends, in ms."""
    certificate: str
    key: str | None
    """None when somebody else has made it."""


class Authority:
    """Issues certificates."""

    def __init__(self, pem: str) -> None:
        """`pem` is what `new_authority` has made."""
        key = serialization.load_pem_private_key(pem.encode(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("an authority of ours has a key on an elliptic curve")
        self._key = key
        self._own = x509.load_pem_x509_certificate(pem.encode())

    @property
    def certificate(self) -> str:
        """What clients, or the gateway, have to trust."""
        return _pem(self._own)

    def server(self, names: Sequence[str]) -> tuple[str, str]:
        """A certificate for a server with these host names and addresses, and its key."""
        key = _new_key()
        issued = self._issue(
            _name("thingway"),
            key.public_key(),
            SERVER_DAYS,
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName([_general(name) for name in names]),
        )
        return _pem(issued), _key_pem(key)

    def device(self, sn: str, days: int, csr: bytes | None = None) -> Issued:
        """A certificate for a device: with a key of our making, or the one that `csr` (PEM) proves.

        Raises `CommandError` for an SN that is too long for one, and for a CSR that is none.
        """
        if len(sn) > _LONGEST_NAME:
            raise CommandError(f"the subject of a certificate has {_LONGEST_NAME} characters")
        key = None if csr else _new_key()
        public = key.public_key() if key else _requested_key(csr or b"")
        issued = self._issue(_name(sn), public, days, ExtendedKeyUsageOID.CLIENT_AUTH)
        return Issued(
            _hexadecimal(issued.serial_number),
            round(issued.not_valid_after_utc.timestamp() * 1000),
            _pem(issued),
            _key_pem(key) if key else None,
        )

    def _issue(
        self,
        subject: x509.Name,
        public: CertificateIssuerPublicKeyTypes,
        days: int,
        purpose: x509.ObjectIdentifier,
        *more: x509.ExtensionType,
    ) -> x509.Certificate:
        builder = (
            _builder(subject, self._own.subject, public, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def device_authority(state: State) -> Authority:
    """The authority of device certificates; made when it is first asked for."""
    return Authority(state.secret(DEVICES, lambda: new_authority("Thingway devices")))


def is_good_for(certificate: str, names: Sequence[str], authority: Authority) -> bool:
    """Whether a server's certificate is of `authority`, for `names`, and need not be renewed."""
    found = x509.load_pem_x509_certificate(certificate.encode())
    try:
        found.verify_directly_issued_by(
            x509.load_pem_x509_certificate(authority.certificate.encode())
        )
        shown = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    fresh = found.not_valid_after_utc - datetime.now(UTC) > timedelta(days=RENEW_DAYS)
    return fresh and {_general(name) for name in names} <= set(shown)


def _requested_key(csr: bytes) -> CertificateIssuerPublicKeyTypes:
    try:
        request = x509.load_pem_x509_csr(csr)
    except ValueError as error:
        raise CommandError(f"this is no certificate signing request: {error}") from error
    if not request.is_signature_valid:
        raise CommandError("the certificate signing request is not signed with its own key")
    return cast("CertificateIssuerPublicKeyTypes", request.public_key())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: CertificateIssuerPublicKeyTypes,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    """What a key is for: certificates of others, or one's own handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _hexadecimal(serial: int) -> str:
    """As OpenSSL writes it: whole bytes, in capitals."""
    text = f"{serial:X}"
    return text.zfill(len(text) + len(text) % 2)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


SERVERS = "servers_authority"
LOOK_EVERY = 1.0
"""Seconds between two looks at the certificate."""
_ALWAYS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificates:
    """The files of one data directory."""

    directory: Path
    names: Sequence[str]
    """Host names and addresses that the servers are reached by."""
    authority: Authority

    @classmethod
    def prepared(
        cls, data: Path, state: State, host: str, more: Sequence[str] = ()
    ) -> "Certificates":
        """Write the files that are missing or out of date; the authorities stand in `state`.

        The servers are reached by `host`, by the machine's name when that is every address, by
        `more`, and over loopback.
        """
        authority = Authority(state.secret(SERVERS, lambda: new_authority("Thingway servers")))
        own = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared
        names = list(dict.fromkeys((*_ALWAYS, own, *more)))
        found = cls(make_private_directory(data / "tls"), names, authority)
        write_private(found.ca_file, authority.certificate.encode())
        devices = device_authority(state)
        write_private(found.device_ca_file, devices.certificate.encode())
        found.renew()
        return found

    @property
    def ca_file(self) -> Path:
        """The authority of the servers: what clients trust."""
        return self.directory / "ca.pem"

    @property
    def device_ca_file(self) -> Path:
        """The authority of device certificates."""
        return self.directory / "device-ca.pem"

    @property
    def certificate(self) -> Path:
        """What the servers show."""
        return self.directory / "server.pem"

    @property
    def key(self) -> Path:
        """The private key of it."""
        return self.directory / "server.key"

    @property
    def server(self) -> ServerFiles:
        """Both."""
        return ServerFiles(self.certificate, self.key)

    def renew(self) -> None:
        """Issue the servers' certificate when there is none, or it ends soon, or lacks a name."""
        if (
            self.certificate.exists()
            and self.key.exists()
            and is_good_for(self.certificate.read_text(), self.names, self.authority)
        ):
            return
        certificate, key = self.authority.server(self.names)
        write_private(self.key, key.encode())
        write_private(self.certificate, certificate.encode())

    async def follow(self, changed: Callable[[], None]) -> None:
        """Renew in time, and call `changed` when the certificate is another one; for ever."""
        seen = self._stamp()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.renew()
            if seen != (now := self._stamp()):
                seen = now
                changed()

    def _stamp(self) -> list[int]:
        return [file.stat().st_mtime_ns for file in (self.certificate, self.key)]
