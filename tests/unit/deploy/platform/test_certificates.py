"""The authorities of an installation, and what they issue."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from deploy.platform import certificates
from deploy.platform.certificates import Authority, is_good_for, new_authority
from deploy.platform.errors import CommandError

AUTHORITY = Authority(new_authority("servers"))
NAMES = ["localhost", "127.0.0.1", "::1"]


def test_a_servers_certificate_is_kept_while_it_fits_and_holds(monkeypatch):
    """Another one is issued for further names, by another authority, and before the end."""
    certificate, _ = AUTHORITY.server(NAMES)

    assert is_good_for(certificate, NAMES, AUTHORITY)
    assert is_good_for(certificate, NAMES[:1], AUTHORITY)
    assert not is_good_for(certificate, [*NAMES, "things.example.com"], AUTHORITY)
    assert not is_good_for(certificate, NAMES, Authority(new_authority("servers")))
    monkeypatch.setattr(certificates, "RENEW_DAYS", certificates.SERVER_DAYS)
    assert not is_good_for(certificate, NAMES, AUTHORITY)


def test_a_devices_certificate_names_it():
    """Its subject is the SN alone, its number is told as TLS tells it."""
    issued = AUTHORITY.device("SN1", 7)
    found = x509.load_pem_x509_certificate(issued.certificate.encode())

    assert found.subject.rfc4514_string() == "CN=SN1"
    assert int(issued.serial, 16) == found.serial_number
    assert len(issued.serial) % 2 == 0
    ends = datetime.fromtimestamp(issued.expires / 1000, UTC)
    assert timedelta(days=6) < ends - datetime.now(UTC) <= timedelta(days=7)
    assert issued.key is not None
    key = serialization.load_pem_private_key(issued.key.encode(), None)
    assert key.public_key() == found.public_key()


def test_a_request_gets_a_certificate_for_its_key_and_the_sn_that_was_named():
    """Whatever it asks for beside its key is not granted."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    csr = made.public_bytes(serialization.Encoding.PEM)
    issued = AUTHORITY.device("SN1", 7, csr)
    found = x509.load_pem_x509_certificate(issued.certificate.encode())

    assert issued.key is None
    assert found.public_key() == key.public_key()
    assert found.subject.rfc4514_string() == "CN=SN1"


@pytest.mark.parametrize(
    ("sn", "csr", "reason"),
    [("S" * 65, None, "64 characters"), ("SN1", b"nothing", "no certificate signing request")],
)
def test_what_cannot_be_a_certificate_is_refused(sn, csr, reason):
    """A common name has 64 characters at most."""
    with pytest.raises(CommandError, match=reason):
        AUTHORITY.device(sn, 7, csr)
