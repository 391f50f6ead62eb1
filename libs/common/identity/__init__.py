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
from libs.common.identity.principal import (
    OWN_CONSOLE_CLIENT_ID,
    PLATFORM_USER_ID,
    Caller,
    Principal,
    PrincipalKind,
)

__all__ = [
    "OWN_CONSOLE_CLIENT_ID",
    "PLATFORM_USER_ID",
    "PRINCIPAL_HEADER",
    "TOKEN_HEADER",
    "Caller",
    "HeaderSigner",
    "HeaderVerifier",
    "Principal",
    "PrincipalKind",
    "generate_keys",
]
