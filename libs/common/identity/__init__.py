"""Who is calling: the principal, its signed header between services, and guards."""

from libs.common.identity.header import PRINCIPAL_HEADER, HeaderSigner, HeaderVerifier, make_keys
from libs.common.identity.principal import Kind, Principal

__all__ = ["PRINCIPAL_HEADER", "HeaderSigner", "HeaderVerifier", "Kind", "Principal", "make_keys"]
