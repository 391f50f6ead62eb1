"""Certificates for tests of TLS."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.platform.certificates import (
    CertificateAuthority,
    CertificateFiles,
    create_authority_pem,
)


@dataclass(frozen=True)
class Files(CertificateFiles):
    """The files of an authority and of a server certificate that it issued."""

    names: Sequence[str] = ("localhost", "127.0.0.1")
    authority: CertificateAuthority = field(
        default_factory=lambda: CertificateAuthority(create_authority_pem("tests"))
    )

    def __post_init__(self) -> None:
        """Write the files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ca_file.write_text(self.authority.certificate)
        self.issue_server_certificate()

    @property
    def both(self) -> Path:
        """Return a file with certificate and key."""
        path = self.directory / "both.pem"
        path.write_text(self.certificate_file.read_text() + self.key_file.read_text())
        return path
