"""The certificates of `thingway up --tls`: made under DIR/tls, and renewed before they end."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.platform.certificates import Authority, device_authority, is_good_for, new_authority
from deploy.platform.files import make_private_directory, write_private
from deploy.platform.nats import ServerFiles
from deploy.platform.state import State

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
