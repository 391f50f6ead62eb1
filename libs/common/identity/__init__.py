"""Who is calling: the principal, its signed header between services, and what it may do and see.

`tokens` and `device_keys` look credentials up in Redis; what writes them is `services/auth/tokens`.
`access` and `grants` know what a user may do and see, `connections` and `tenants` what is known of
users of the bus, `seal` keeps secrets that have to be used again.
"""

from libs.common.identity.header import (
    PRINCIPAL_HEADER,
    TOKEN_HEADER,
    HeaderSigner,
    HeaderVerifier,
    make_keys,
)
from libs.common.identity.principal import OWN_CONSOLE, PLATFORM, Caller, Kind, Principal

__all__ = [
    "OWN_CONSOLE",
    "PLATFORM",
    "PRINCIPAL_HEADER",
    "TOKEN_HEADER",
    "Caller",
    "HeaderSigner",
    "HeaderVerifier",
    "Kind",
    "Principal",
    "make_keys",
]
