"""Callers: principals, signed headers, permissions and grants.

`tokens` and `device_keys` read credentials from Redis, which `services/auth/tokens` writes.
`access` and `grants` read permissions and grants, `users` nicknames and tenants. `seal` encrypts
secrets that must be decrypted later.
"""

from libs.common.identity.header import (
    PRINCIPAL_HEADER,
    TOKEN_HEADER,
    HeaderSigner,
    HeaderVerifier,
    generate_keys,
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
    "generate_keys",
]
