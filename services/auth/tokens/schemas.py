"""The token endpoint on the wire (device open API, "Token_Details")."""

import msgspec


class ClientCredentials(msgspec.Struct, frozen=True):
    """The grant `client_credentials`."""

    client_id: str
    client_secret: str


class RefreshToken(msgspec.Struct, frozen=True):
    """The grant `refresh_token`; a client id that comes along must be the token's."""

    refresh_token: str
    client_id: str | None = None


TokenRequest = ClientCredentials | RefreshToken


class Client(msgspec.Struct, frozen=True):
    """Where a token request comes from."""

    address: str
    """Empty when the gateway did not say it."""
    request_id: str = ""


class TokenDetails(msgspec.Struct, frozen=True):
    """The tokens, and the whole seconds that are left to them."""

    access_token: str
    refresh_token: str
    expires_in: int
    refresh_token_expires_in: int
