"""Who is calling: the principal, its signed header between services, and guards."""

from libs.common.identity.header import (
    PRINCIPAL_HEADER,
    TOKEN_HEADER,
    HeaderSigner,
    HeaderVerifier,
    make_keys,
)
from libs.common.identity.principal import Caller, Kind, Principal

__all__ = [
    "PRINCIPAL_HEADER",
    "TOKEN_HEADER",
    "Caller",
    "HeaderSigner",
    "HeaderVerifier",
    "Kind",
    "Principal",
    "make_keys",
]
