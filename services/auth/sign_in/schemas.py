"""`POST /oauth2/token` on the wire (specification, "Authentication"; Decision 3)."""

import msgspec


class ConsoleCredentials(msgspec.Struct, frozen=True):
    """Which console asks."""

    client_id: str
    client_secret: str


class PasswordGrant(msgspec.Struct, frozen=True):
    """The grant `password`."""

    client: ConsoleCredentials
    username: str
    """The e-mail address."""
    password: str


class RefreshGrant(msgspec.Struct, frozen=True):
    """The grant `refresh_token`."""

    client: ConsoleCredentials
    refresh_token: str


Grant = PasswordGrant | RefreshGrant


class ConsoleTokens(msgspec.Struct, frozen=True, kw_only=True):
    """A pair of tokens; `expires_in` is the seconds left to the access token."""

    access_token: str
    refresh_token: str
    token_type: str = "Bearer"  # noqa: S105 - it is the scheme of the header
    expires_in: int


class ConsoleTokenAnswer(msgspec.Struct, kw_only=True):
    """The tokens at top level, as specified, and in `data`, where consoles read them."""

    access_token: str
    refresh_token: str
    token_type: str
    expires_in: int
    data: ConsoleTokens
    status: str = "Success"
    request_id: str


class Origin(msgspec.Struct, frozen=True):
    """Where a request comes from and which tenant it names."""

    tenant: str | None
    """The header `TENANT_ID`."""
    address: str
    request_id: str
