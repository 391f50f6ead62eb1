"""This machine or container: open files, and the certificates that settings name."""

import resource
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from deploy.checkup.findings import Finding, failed, found

LEAST_FILES = 10_000
SOON = timedelta(days=14)
CERTIFICATES = ("THINGWAY_TLS_CERTIFICATE", "THINGWAY_CA_FILE", "THINGWAY_DEVICE_CA_FILE")
"""Settings that name files of certificates."""


def check_files() -> Finding:
    """How many files a process may have open here."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = most != resource.RLIM_INFINITY and most < LEAST_FILES
    text = "no bound" if most == resource.RLIM_INFINITY else f"{most}"
    return found("open files", text if few else "", text, "open-files", minor=True)


def check_certificates(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Until when the certificates are valid that a service's settings name."""
    for name in CERTIFICATES:
        path = environment.get(name)
        if path:
            yield _certificate(Path(path))


def _certificate(path: Path) -> Finding:
    subject = f"certificate {path.name}"
    try:
        found_in = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        return failed(subject, error, "certificates")
    ends = min(one.not_valid_after_utc for one in found_in)
    text = f"valid until {ends:%Y-%m-%d %H:%M} UTC"
    left = ends - datetime.now(UTC)
    wrong = f"ran out: {text}" if left < timedelta() else text
    return found(
        subject, wrong if left < SOON else "", text, "certificates", minor=left > timedelta()
    )
