"""Certificate authorities of an installation, and their certificates (X.509, PEM).

One authority certifies the servers for clients, the other the devices for the gateway.
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
from deploy.platform.files import create_private_directory, write_private
from deploy.platform.nats import TlsFiles
from deploy.platform.state import State

DEVICE_AUTHORITY_SECRET = "devices_authority"  # noqa: S105 - the name of a secret
"""Name of the secret with the key and certificate of `device_authority`."""
AUTHORITY_CERTIFICATE_DAYS = 3650
SERVER_CERTIFICATE_DAYS = 90
MIN_DAYS_LEFT = 30
"""A server certificate with fewer days left is renewed."""
_MAX_CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this time before their issue, for clients with slow clocks."""
_MAX_NAME_CHARACTERS = 64
"""Maximum length of a common name (X.520)."""


def create_authority_pem(name: str) -> str:
    """Create an authority; return its private key and certificate, concatenated."""
    key = _new_key()
    subject = _subject_name(name)
    certificate = (
        _start_certificate(subject, subject, key.public_key(), AUTHORITY_CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _key_pem(key) + _certificate_pem(certificate)


@dataclass(frozen=True)
class IssuedCertificate:
    """A device certificate."""

    serial: str
    """Serial number in hexadecimal, as OpenSSL prints it."""
    expires: int
    """Expiry in epoch ms."""
    certificate: str
    key: str | None
    """Private key; None if the certificate was issued for a CSR."""


class CertificateAuthority:
    """A certificate authority."""

    def __init__(self, pem: str) -> None:
        """`pem` is the output of `create_authority_pem`."""
        key = serialization.load_pem_private_key(pem.encode(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("the key of an authority must be an elliptic curve key")
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(pem.encode())

    @property
    def certificate(self) -> str:
        """Return the certificate that clients or the gateway must trust."""
        return _certificate_pem(self._certificate)

    def issue_server_certificate(self, names: Sequence[str]) -> tuple[str, str]:
        """Return a server certificate for these host names and addresses, and its key."""
        key = _new_key()
        issued = self._issue(
            _subject_name("thingway"),
            key.public_key(),
            SERVER_CERTIFICATE_DAYS,
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName([_general_name(name) for name in names]),
        )
        return _certificate_pem(issued), _key_pem(key)

    def issue_device_certificate(
        self, sn: str, days: int, csr: bytes | None = None
    ) -> IssuedCertificate:
        """Issue a device certificate with a new key, or for the key in `csr` (PEM).

        Raises `CommandError` if the SN is too long or the CSR invalid.
        """
        if len(sn) > _MAX_NAME_CHARACTERS:
            raise CommandError(
                f"the SN of a certificate has at most {_MAX_NAME_CHARACTERS} characters"
            )
        key = None if csr else _new_key()
        public = key.public_key() if key else _read_requested_key(csr or b"")
        issued = self._issue(_subject_name(sn), public, days, ExtendedKeyUsageOID.CLIENT_AUTH)
        return IssuedCertificate(
            _hexadecimal(issued.serial_number),
            round(issued.not_valid_after_utc.timestamp() * 1000),
            _certificate_pem(issued),
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
            _start_certificate(subject, self._certificate.subject, public, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def device_authority(state: State) -> CertificateAuthority:
    """Return the authority of device certificates, created on first use."""
    return CertificateAuthority(
        state.get_or_create_secret(
            DEVICE_AUTHORITY_SECRET, lambda: create_authority_pem("Thingway devices")
        )
    )


def is_fresh_for(certificate: str, names: Sequence[str], authority: CertificateAuthority) -> bool:
    """Return whether a server certificate need not be renewed.

    `authority` must have issued it for `names`, and it must be valid for more than `MIN_DAYS_LEFT`.
    """
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    try:
        loaded.verify_directly_issued_by(
            x509.load_pem_x509_certificate(authority.certificate.encode())
        )
        covered = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    is_fresh = loaded.not_valid_after_utc - datetime.now(UTC) > timedelta(days=MIN_DAYS_LEFT)
    return is_fresh and {_general_name(name) for name in names} <= set(covered)


def _read_requested_key(csr: bytes) -> CertificateIssuerPublicKeyTypes:
    try:
        request = x509.load_pem_x509_csr(csr)
    except ValueError as error:
        raise CommandError(f"invalid certificate signing request: {error}") from error
    if not request.is_signature_valid:
        raise CommandError("the certificate signing request is not signed with its own key")
    return cast("CertificateIssuerPublicKeyTypes", request.public_key())


def _start_certificate(
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
        .not_valid_before(now - _MAX_CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    """Return the usage of a key: signing certificates, or TLS handshakes."""
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


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _subject_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _hexadecimal(serial: int) -> str:
    """Return a serial number as OpenSSL prints it: whole bytes in capitals."""
    text = f"{serial:X}"
    return text.zfill(len(text) + len(text) % 2)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


SERVER_AUTHORITY_SECRET = "servers_authority"  # noqa: S105 - the name of a secret
CERTIFICATE_CHECK_SECONDS = 1.0
"""Seconds between two checks of the certificate."""
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class CertificateFiles:
    """The certificate files of a data directory."""

    directory: Path
    names: Sequence[str]
    """Host names and addresses of the servers."""
    authority: CertificateAuthority

    @classmethod
    def prepare(
        cls, data: Path, state: State, host: str, more: Sequence[str] = ()
    ) -> "CertificateFiles":
        """Write the files if missing or outdated; the authorities' keys are in `state`.

        The certificate covers `host` (the machine's name if `host` means every address), `more` and
        loopback.
        """
        authority = CertificateAuthority(
            state.get_or_create_secret(
                SERVER_AUTHORITY_SECRET, lambda: create_authority_pem("Thingway servers")
            )
        )
        public_name = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared
        names = list(dict.fromkeys((*_LOCAL_NAMES, public_name, *more)))
        certificates = cls(create_private_directory(data / "tls"), names, authority)
        write_private(certificates.ca_file, authority.certificate.encode())
        devices = device_authority(state)
        write_private(certificates.device_ca_file, devices.certificate.encode())
        certificates.renew_if_needed()
        return certificates

    @property
    def ca_file(self) -> Path:
        """Return the file with the servers' authority, which clients trust."""
        return self.directory / "ca.pem"

    @property
    def device_ca_file(self) -> Path:
        """Return the file with the authority of device certificates."""
        return self.directory / "device-ca.pem"

    @property
    def certificate_file(self) -> Path:
        """Return the file with the servers' certificate."""
        return self.directory / "server.pem"

    @property
    def key_file(self) -> Path:
        """Return the file with the servers' private key."""
        return self.directory / "server.key"

    @property
    def tls_files(self) -> TlsFiles:
        """Return the files with the servers' certificate and private key."""
        return TlsFiles(self.certificate_file, self.key_file)

    def renew_if_needed(self) -> None:
        """Issue a new server certificate if it is missing, expires soon or lacks a name."""
        if (
            self.certificate_file.exists()
            and self.key_file.exists()
            and is_fresh_for(self.certificate_file.read_text(), self.names, self.authority)
        ):
            return
        self.issue_server_certificate()

    def issue_server_certificate(self) -> None:
        """Issue a new server certificate."""
        certificate, key = self.authority.issue_server_certificate(self.names)
        write_private(self.key_file, key.encode())
        write_private(self.certificate_file, certificate.encode())

    async def renew_forever(self, changed: Callable[[], None]) -> None:
        """Renew the certificate in time; call `changed` after each change; never return."""
        modified = self._modification_times()
        while True:
            await asyncio.sleep(CERTIFICATE_CHECK_SECONDS)
            self.renew_if_needed()
            if modified != (now := self._modification_times()):
                modified = now
                changed()

    def _modification_times(self) -> list[int]:
        return [file.stat().st_mtime_ns for file in (self.certificate_file, self.key_file)]
