"""TLS by configuration: what a listener shows, whom a client trusts, whose certificate came."""

import asyncio
import logging
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from libs.common.settings import ServiceSettings, SettingsInvalid

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two looks at the files of a listener."""
ENCRYPTED = frozenset({"https", "tls", "mqtts", "wss"})
"""Schemes of addresses that are connected to with TLS."""
MQTT_PORTS = {"mqtt": 1883, "mqtts": 8883}


@lru_cache(maxsize=16)
def trusting(ca_file: str) -> ssl.SSLContext:
    """What clients connect with: trusts the authorities in `ca_file`, the system's when empty.

    Raises `SettingsInvalid` for a file that cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise SettingsInvalid(f"THINGWAY_CA_FILE: {ca_file}: {error}") from error


def trusting_for(url: str, ca_file: str) -> ssl.SSLContext | None:
    """What to connect to `url` with; None when its scheme is a plain one."""
    return trusting(ca_file) if url.partition("://")[0] in ENCRYPTED else None


def mqtt_doors(urls: str, ca_file: str) -> list[dict[str, Any]]:
    """Host, port and TLS of `mqtt://` or `mqtts://` addresses, separated by commas.

    Each is as aiomqtt's client takes it.
    """
    return [
        {
            "hostname": address.hostname or "",
            "port": address.port or MQTT_PORTS.get(address.scheme, 1883),
            "tls_context": trusting_for(url, ca_file),
        }
        for url in urls.split(",")
        for address in [urlsplit(url)]
    ]


class PeerCertificate(NamedTuple):
    """What TLS has proved of a client."""

    subject: str
    """Its common name: of a device the SN."""
    serial: str
    """Hexadecimal, as OpenSSL writes it."""


def peer_certificate(transport: asyncio.BaseTransport) -> PeerCertificate | None:
    """The certificate of a client that was asked for one and showed one that is trusted."""
    shown: dict[str, Any] | None = transport.get_extra_info("peercert")
    if not shown:
        return None
    names = [value for part in shown["subject"] for name, value in part if name == "commonName"]
    return PeerCertificate(names[0], shown["serialNumber"]) if len(names) == 1 else None


class ServerTls:
    """What a listener shows of itself, and whose certificates it asks clients for."""

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        """PEM files: `certificate` with its chain, `key` without a password.

        With `client_ca` a client may show a certificate of that authority; none is needed.
        Raises `SettingsInvalid` for files that make no certificate.
        """
        self._files = (certificate, key)
        self._client_ca = client_ca
        try:
            self.context = self._made()
            self._seen = self._stamps()
        except OSError as error:  # ssl.SSLError is one
            raise SettingsInvalid(
                f"THINGWAY_TLS_CERTIFICATE, THINGWAY_TLS_KEY, THINGWAY_DEVICE_CA_FILE: {error}"
            ) from error

    @classmethod
    def of(cls, settings: ServiceSettings, client_ca: str = "") -> Self | None:
        """What the settings of a process say; None for a plain listener."""
        certificate, key = settings.tls_certificate, settings.tls_key
        if bool(certificate) != bool(key):
            raise SettingsInvalid("THINGWAY_TLS_CERTIFICATE and THINGWAY_TLS_KEY go together")
        return cls(certificate, key, client_ca) if certificate else None

    async def follow(self) -> None:
        """Show new connections the new certificate whenever the files change; for ever.

        Open connections go on. Files that do not fit (the one is there, the other is to come)
        are looked at again until they do.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Read the files again if they have changed."""
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            self._made()  # a key that does not fit would take the certificate in use away
            self.context.load_cert_chain(*self._files)
        except OSError as error:
            log.warning("the certificate %s cannot be read: %s", self._files[0], error)
            return
        self._seen = stamps
        log.info("the certificate %s was read again", self._files[0])

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        if self._client_ca:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _stamps(self) -> list[tuple[int, int, int]]:
        found = [Path(file).stat() for file in self._files]
        return [(one.st_ino, one.st_mtime_ns, one.st_size) for one in found]
