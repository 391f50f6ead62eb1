"""Both grants of the token endpoint."""

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from libs.common.errors import Forbidden, Unauthenticated
from libs.common.identity import Caller, Kind, Principal
from libs.common.identity.tokens import Refusal, TokenPair
from services.auth.applications.schemas import StoredApplication
from services.auth.metrics import Door, count_login, count_tokens
from services.auth.secret_hash import secret_matches
from services.auth.tokens.schemas import (
    Client,
    ClientCredentials,
    RefreshToken,
    TokenDetails,
    TokenRequest,
)

log = logging.getLogger(__name__)

WRONG_CREDENTIALS = "client_id or client_secret is wrong"
"""One answer for an unknown client and for a wrong secret."""
WRONG_REFRESH = "refresh_token is not valid, or no longer"


class Directory(Protocol):
    """Finds applications."""

    async def by_id(self, application_id: int) -> StoredApplication | None:
        """The application with this id."""

    async def by_client_id(self, client_id: str) -> StoredApplication | None:
        """The application that logs in with `client_id`."""


class Tokens(Protocol):
    """The token state, as far as it is needed here."""

    async def issue(self, principal: Principal, generation: int) -> TokenPair | Refusal:
        """Start a family."""

    async def holder(self, refresh_token: str) -> Principal | None:
        """Whose refresh token this is."""

    async def rotate(
        self, refresh_token: str, principal: Principal, generation: int
    ) -> TokenPair | Refusal:
        """Use a refresh token up and issue the next pair of its family."""


class TokenService:
    """Gives tokens for credentials and for refresh tokens.

    `refused` is told of applications that come from where they may not, and lives are in
    seconds.
    """

    def __init__(
        self,
        directory: Directory,
        tokens: Tokens,
        refused: Callable[[Caller, str], None],
        *,
        access_life: int,
        refresh_life: int,
    ) -> None:
        self._directory = directory
        self._tokens = tokens
        self._refused = refused
        self._access_life = access_life
        self._refresh_life = refresh_life

    async def grant(self, request: TokenRequest, client: Client) -> TokenDetails:
        """Answer either grant of `client`; raise `Unauthenticated` or `Forbidden`."""
        if isinstance(request, ClientCredentials):
            return await self.log_in(request, client)
        return await self.refresh(request, client)

    async def log_in(self, credentials: ClientCredentials, client: Client) -> TokenDetails:
        """Issue tokens for an application's credentials.

        Raises `Unauthenticated`, and `Forbidden` when they are right and the address is not.
        """
        application = await self._directory.by_client_id(credentials.client_id)
        stored = application.secret_hash if application else None
        outcome: TokenPair | Refusal | None = None
        if secret_matches(credentials.client_secret, stored) and application:
            self._check_address(application, client, "client_credentials")
            outcome = await self._tokens.issue(application.principal, application.generation)
        granted = isinstance(outcome, TokenPair)
        count_login("client_credentials", ok=granted)
        return self._details(outcome, WRONG_CREDENTIALS)

    async def refresh(self, request: RefreshToken, client: Client) -> TokenDetails:
        """Issue the next tokens of a family; raise `Unauthenticated` or `Forbidden`.

        The application is read anew: its name may have changed, and its generation is
        what keeps a token that Redis should have forgotten from being of use.
        """
        outcome = await self._rotate(request, client)
        granted = isinstance(outcome, TokenPair)
        count_login("refresh_token", ok=granted)
        return self._details(outcome, WRONG_REFRESH)

    async def _rotate(self, request: RefreshToken, client: Client) -> TokenPair | Refusal:
        holder = await self._tokens.holder(request.refresh_token)
        if holder is None or holder.kind is not Kind.APPLICATION:
            return Refusal.UNKNOWN
        application = await self._directory.by_id(holder.application_id)
        if application is None:
            return Refusal.STALE
        if request.client_id is not None and request.client_id != application.client_id:
            return Refusal.UNKNOWN
        self._check_address(application, client, "refresh_token")
        principal = msgspec.structs.replace(application.principal, family=holder.family)
        outcome = await self._tokens.rotate(
            request.refresh_token, principal, application.generation
        )
        if outcome is Refusal.REUSED:
            log.warning(
                "application %d used a refresh token twice; its family is revoked", application.id
            )
        return outcome

    def _check_address(self, application: StoredApplication, client: Client, door: Door) -> None:
        """Raise `Forbidden` unless the application may call from where the client is."""
        if application.may_call_from(client.address):
            return
        count_login(door, ok=False)
        self._refused(Caller(application.principal, client.address, client.request_id), "address")
        raise Forbidden(f"application may not call from {client.address or 'an unknown address'}")

    def _details(self, outcome: TokenPair | Refusal | None, otherwise: str) -> TokenDetails:
        if not isinstance(outcome, TokenPair):
            raise Unauthenticated(otherwise)
        count_tokens()
        return TokenDetails(
            access_token=outcome.access,
            refresh_token=outcome.refresh,
            expires_in=remaining(self._access_life),
            refresh_token_expires_in=remaining(self._refresh_life),
        )


def remaining(life: int) -> int:
    """The whole seconds that are surely left when the answer arrives, as samples show them."""
    return max(0, life - 1)
