"""The certificate authorities of an installation, and their certificates."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from deploy.platform import certificates
from deploy.platform.certificates import CertificateAuthority, create_authority_pem, is_fresh_for
from deploy.platform.errors import CommandError

AUTHORITY = CertificateAuthority(create_authority_pem("servers"))
NAMES = ["localhost", "127.0.0.1", "::1"]


def test_a_server_certificate_is_kept_while_it_is_valid(monkeypatch):
    """New names, another authority and a near expiry require a new certificate."""
    certificate, _ = AUTHORITY.issue_server_certificate(NAMES)

    assert is_fresh_for(certificate, NAMES, AUTHORITY)
    assert is_fresh_for(certificate, NAMES[:1], AUTHORITY)
    assert not is_fresh_for(certificate, [*NAMES, "things.example.com"], AUTHORITY)
    assert not is_fresh_for(
        certificate, NAMES, CertificateAuthority(create_authority_pem("servers"))
    )
    monkeypatch.setattr(certificates, "MIN_DAYS_LEFT", certificates.SERVER_CERTIFICATE_DAYS)
    assert not is_fresh_for(certificate, NAMES, AUTHORITY)


def test_the_subject_of_a_device_certificate_is_the_sn():
    """The serial number has the format that TLS libraries print."""
    issued = AUTHORITY.issue_device_certificate("SN1", 7)
    found = x509.load_pem_x509_certificate(issued.certificate.encode())

    assert found.subject.rfc4514_string() == "CN=SN1"
    assert int(issued.serial, 16) == found.serial_number
    assert len(issued.serial) % 2 == 0
    ends = datetime.fromtimestamp(issued.expires / 1000, UTC)
    assert timedelta(days=6) < ends - datetime.now(UTC) <= timedelta(days=7)
    assert issued.key is not None
    key = serialization.load_pem_private_key(issued.key.encode(), None)
    assert key.public_key() == found.public_key()


def test_a_csr_gets_a_certificate_for_its_key_and_the_given_sn():
    """Everything else in the request is ignored."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    csr = made.public_bytes(serialization.Encoding.PEM)
    issued = AUTHORITY.issue_device_certificate("SN1", 7, csr)
    found = x509.load_pem_x509_certificate(issued.certificate.encode())

    assert issued.key is None
    assert found.public_key() == key.public_key()
    assert found.subject.rfc4514_string() == "CN=SN1"


@pytest.mark.parametrize(
    ("sn", "csr", "reason"),
    [("S" * 65, None, "64 characters"), ("SN1", b"nothing", "invalid certificate signing request")],
)
def test_invalid_certificate_requests_are_rejected(sn, csr, reason):
    """A common name has at most 64 characters."""
    with pytest.raises(CommandError, match=reason):
        AUTHORITY.issue_device_certificate(sn, 7, csr)
