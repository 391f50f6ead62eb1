"""Both token endpoints on the wire (device open API, "Token_Details"; "Authentication")."""

from typing import Literal

import msgspec

from services.auth.tokens.writer import LoginOrigin

MAX_AGENT = 255
"""Characters of a browser's name that are remembered."""


class Origin(msgspec.Struct, frozen=True):
    """Where a request comes from, and which tenant it names."""

    address: str
    """Empty when the gateway did not say it."""
    request_id: str = ""
    tenant: str | None = None
    """The header `TENANT_ID`; of people only."""
    agent: str = ""
    """The header `User-Agent`; of people only."""

    @property
    def login(self) -> LoginOrigin:
        """What is remembered of a log-in from here."""
        return LoginOrigin(self.address, self.agent[:MAX_AGENT])


class ClientCredentials(msgspec.Struct, frozen=True):
    """The grant `client_credentials`."""

    client_id: str
    client_secret: str


class RefreshToken(msgspec.Struct, frozen=True):
    """The grant `refresh_token` of applications.

    A client id and a secret that come along must be theirs.
    """

    refresh_token: str
    client_id: str | None = None
    client_secret: str | None = None


TokenRequest = ClientCredentials | RefreshToken


class TokenDetails(msgspec.Struct, frozen=True):
    """The tokens of an application, and the whole seconds that are left to them."""

    access_token: str
    refresh_token: str
    expires_in: int
    refresh_token_expires_in: int


class PasswordGrant(msgspec.Struct, frozen=True):
    """The grant `password`."""

    client: ClientCredentials
    """Which console asks."""
    username: str
    """The e-mail address."""
    password: str


class RefreshGrant(msgspec.Struct, frozen=True):
    """The grant `refresh_token` of people."""

    client: ClientCredentials
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
    status: Literal["Success"] = "Success"
    request_id: str
