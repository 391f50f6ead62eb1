"""TLS settings: certificates of listeners, trusted authorities, certificates of clients."""

import asyncio
import logging
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from opentelemetry import metrics
from opentelemetry.metrics import Observation

from libs.common.settings import ServiceSettings, SettingsInvalid

log = logging.getLogger(__name__)

FILE_CHECK_SECONDS = 1.0
"""Seconds between two checks of a listener's files."""
TLS_SCHEMES = frozenset({"https", "tls", "mqtts", "wss"})
"""URL schemes of connections with TLS."""
DEFAULT_PORT_BY_MQTT_SCHEME = {"mqtt": 1883, "mqtts": 8883}


CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The cipher suites of listeners for TLS 1.2, in OpenSSL's notation: with authenticated encryption
and forward secrecy. Same as in `deploy/platform/nats.py`."""
CERTIFICATE, KEY, DEVICE_CA = (
    "THINGWAY_TLS_CERTIFICATE",
    "THINGWAY_TLS_KEY",
    "THINGWAY_DEVICE_CA_FILE",
)
"""Environment variables that name the files of a listener."""


def trusting_context(*, ca_file: str = "", ca_pem: str = "") -> ssl.SSLContext:
    """Return the TLS context of a client that trusts given authorities, or the system's.

    Signatures, dates and names are verified. The form of certificates (RFC 5280) is not, as before
    Python 3.13 and in other software: authorities of plain `openssl req -x509` lack an extension.
    Raises `OSError` or `ValueError` for invalid authorities.
    """
    context = ssl.create_default_context(cafile=ca_file or None, cadata=ca_pem or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@lru_cache(maxsize=16)
def client_context(ca_file: str) -> ssl.SSLContext:
    """Return the TLS context of clients, with the authorities in `ca_file` or the system's.

    Raises `SettingsInvalid` for a file that cannot be read.
    """
    try:
        return trusting_context(ca_file=ca_file)
    except OSError as error:
        raise SettingsInvalid(f"THINGWAY_CA_FILE: {ca_file}: {error}") from error


def client_context_for(url: str, ca_file: str) -> ssl.SSLContext | None:
    """Return the TLS context for `url`; None for a scheme without TLS."""
    return client_context(ca_file) if url.partition("://")[0] in TLS_SCHEMES else None


def parse_mqtt_urls(urls: str, ca_file: str) -> list[dict[str, Any]]:
    """Return host, port and TLS of `mqtt://` or `mqtts://` URLs, separated by commas.

    Each is a set of arguments for aiomqtt's client.
    """
    return [
        {
            "hostname": address.hostname or "",
            "port": address.port or DEFAULT_PORT_BY_MQTT_SCHEME.get(address.scheme, 1883),
            "tls_context": client_context_for(url, ca_file),
        }
        for url in urls.split(",")
        for address in [urlsplit(url)]
    ]


CERTIFICATE_SETTINGS = ("tls_certificate", "ca_file", "device_ca_file")
"""Settings that name files with certificates."""


def read_expiry(path: Path) -> datetime:
    """Return the earliest expiry of certificates in a PEM file.

    Raises `OSError` or `ValueError` if the file cannot be read.
    """
    from cryptography import x509  # noqa: PLC0415 - only processes with certificates load it

    certificates = x509.load_pem_x509_certificates(path.read_bytes())
    return min(each.not_valid_after_utc for each in certificates)


def observe_expiry(settings: ServiceSettings) -> None:
    """Show the expiry of the certificates that `settings` name as metrics."""
    files = {
        name: Path(file) for name in CERTIFICATE_SETTINGS if (file := getattr(settings, name, ""))
    }
    if files:
        metrics.get_meter("thingway").create_observable_gauge(
            "thingway_certificate_expires_timestamp_seconds",
            [lambda _: list(_observe(files))],
            description="Expiry of the certificates in a file, s since 1970; 0 if it is unreadable",
        )


def _observe(files: Mapping[str, Path]) -> Iterator[Observation]:
    for name, path in files.items():
        try:
            seconds = read_expiry(path).timestamp()
        except (OSError, ValueError):
            seconds = 0.0
        yield Observation(seconds, {"setting": name})


class PeerCertificate(NamedTuple):
    """The verified certificate of a client."""

    subject: str
    """The common name; for a device, the SN."""
    serial: str
    """The serial number in hexadecimal, as OpenSSL writes it."""


def peer_certificate(transport: asyncio.BaseTransport) -> PeerCertificate | None:
    """Return the verified certificate of a client, if it has one with a single name."""
    peer: dict[str, Any] | None = transport.get_extra_info("peercert")
    if not peer:
        return None
    names = [value for part in peer["subject"] for name, value in part if name == "commonName"]
    return PeerCertificate(names[0], peer["serialNumber"]) if len(names) == 1 else None


class ServerTls:
    """The certificate of a listener, and the authority of its clients' certificates."""

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        """Load PEM files: `certificate` with its chain, `key` without a password.

        With `client_ca`, a client may present a certificate of this authority. Raises
        `SettingsInvalid` for invalid files.
        """
        self._files = (certificate, key)
        self._client_ca = client_ca
        try:
            self.context = self._build_context()
            self._seen = self._read_stamps()
        except OSError as error:  # ssl.SSLError is one
            raise SettingsInvalid(self._find_fault(error)) from error

    @classmethod
    def from_settings(cls, settings: ServiceSettings, client_ca: str = "") -> Self | None:
        """Return the TLS of a process from its settings; None for a listener without TLS."""
        certificate, key = settings.tls_certificate, settings.tls_key
        if bool(certificate) != bool(key):
            raise SettingsInvalid(f"{CERTIFICATE} and {KEY} must be set together")
        return cls(certificate, key, client_ca) if certificate else None

    async def reload_forever(self) -> None:
        """Reload the certificate for new connections whenever its files change; for ever.

        Open connections continue. Files that do not match (because one is not replaced yet) are
        checked again.
        """
        while True:
            await asyncio.sleep(FILE_CHECK_SECONDS)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        """Reload the files if they have changed."""
        try:
            stamps = self._read_stamps()
            if stamps == self._seen:
                return
            self._build_context()  # raises before a wrong key could replace the certificate
            self.context.load_cert_chain(*self._files, password="")
        except OSError as error:
            log.warning("the certificate %s cannot be read: %s", self._files[0], error)
            return
        self._seen = stamps
        log.info("reloaded the certificate %s", self._files[0])

    def _build_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.load_cert_chain(*self._files, password="")  # OpenSSL would ask at the terminal
        if self._client_ca:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _find_fault(self, error: OSError) -> str:
        """Return the setting and file that cause an error, and how."""
        certificate, key = self._files
        files = {CERTIFICATE: certificate, KEY: key, DEVICE_CA: self._client_ca}
        configured_files = {setting: Path(file) for setting, file in files.items() if file}
        for setting, path in configured_files.items():
            try:
                path.read_bytes()
                if setting != KEY:
                    read_expiry(path)
            except OSError as unreadable:
                return f"{setting}: {path}: {unreadable.strerror}"
            except ValueError:
                return f"{setting}: {path} has no certificate in PEM format"
        reason = getattr(error, "reason", None) or error
        return f"{KEY}: {key} is not the key, without a password, of {certificate}: {reason}"

    def _read_stamps(self) -> list[tuple[int, int, int]]:
        statuses = [Path(file).stat() for file in self._files]
        return [(entry.st_ino, entry.st_mtime_ns, entry.st_size) for entry in statuses]
