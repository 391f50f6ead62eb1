"""Certificates for tests of TLS."""

from dataclasses import dataclass
from pathlib import Path

from deploy.platform.certificates import Authority, new_authority


@dataclass
class Files:
    """An authority and a server's certificate of it, in files."""

    directory: Path

    def __post_init__(self) -> None:
        """Make both."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(new_authority("tests"))
        self.ca.write_text(self.authority.certificate)
        self.renew()

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.directory / "server.pem"

    @property
    def key(self) -> Path:
        return self.directory / "server.key"

    @property
    def both(self) -> Path:
        """Certificate and key in one file."""
        path = self.directory / "both.pem"
        path.write_text(self.certificate.read_text() + self.key.read_text())
        return path

    def renew(self) -> None:
        """Issue another certificate for the server."""
        certificate, key = self.authority.issue_server_certificate(["localhost", "127.0.0.1"])
        self.key.write_text(key)
        self.certificate.write_text(certificate)
