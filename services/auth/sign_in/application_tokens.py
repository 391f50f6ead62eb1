"""Both grants of `POST /oauth/token`: an application's credentials, and its refresh token."""

import logging
from dataclasses import dataclass

import msgspec

from libs.common.errors import Forbidden, Unauthenticated
from libs.common.identity import Caller, Kind
from services.auth.applications.model import StoredApplication
from services.auth.applications.store import ApplicationStore
from services.auth.logins import Door, count_login, count_tokens, secret_matches
from services.auth.refused_logins import RefusedLoginRecorder
from services.auth.sign_in.token_requests import (
    ClientCredentials,
    Origin,
    RefreshToken,
    TokenDetails,
    TokenRequest,
)
from services.auth.tokens.writer import Refusal, TokenPair, TokenWriter

log = logging.getLogger(__name__)

WRONG_CREDENTIALS = "client_id or client_secret is wrong"
"""One answer for an unknown client and for a wrong secret."""
WRONG_REFRESH = "refresh_token is not valid, or no longer"


@dataclass(frozen=True)
class ApplicationTokenService:
    """Issues tokens for credentials and for refresh tokens; lives are in seconds."""

    applications: ApplicationStore
    tokens: TokenWriter
    refused: RefusedLoginRecorder
    access_life: int
    refresh_life: int

    async def grant(self, request: TokenRequest, origin: Origin) -> TokenDetails:
        """Answer either grant; raise `Unauthenticated` or `Forbidden`."""
        if isinstance(request, ClientCredentials):
            return await self._log_in(request, origin)
        return await self._refresh(request, origin)

    async def _log_in(self, credentials: ClientCredentials, origin: Origin) -> TokenDetails:
        """Issue tokens for an application's credentials.

        Raises `Unauthenticated`, and `Forbidden` when they are right and the address is not.
        """
        application = await self.applications.by_client_id(credentials.client_id)
        stored = application.secret_hash if application else None
        outcome: TokenPair | Refusal | None = None
        if secret_matches(credentials.client_secret, stored) and application:
            self._check_address(application, origin, "client_credentials")
            outcome = await self.tokens.issue(application.principal, application.generation)
        granted = isinstance(outcome, TokenPair)
        count_login("client_credentials", ok=granted)
        return self._details(outcome, WRONG_CREDENTIALS)

    async def _refresh(self, request: RefreshToken, origin: Origin) -> TokenDetails:
        """Issue the next tokens of a family; raise `Unauthenticated` or `Forbidden`.

        The application is read anew: its name may have changed, and its generation is
        what keeps a token that Redis should have forgotten from being of use.
        """
        outcome = await self._rotate(request, origin)
        granted = isinstance(outcome, TokenPair)
        count_login("refresh_token", ok=granted)
        return self._details(outcome, WRONG_REFRESH)

    async def _rotate(self, request: RefreshToken, origin: Origin) -> TokenPair | Refusal:
        holder = await self.tokens.holder(request.refresh_token)
        if holder is None or holder.kind is not Kind.APPLICATION:
            return Refusal.UNKNOWN
        application = await self.applications.by_id(holder.application_id)
        if application is None:
            return Refusal.STALE
        if not _is_of(application, request):
            return Refusal.UNKNOWN
        self._check_address(application, origin, "refresh_token")
        principal = msgspec.structs.replace(application.principal, family=holder.family)
        outcome = await self.tokens.rotate(request.refresh_token, principal, application.generation)
        if outcome is Refusal.REUSED:
            log.warning(
                "application %d used a refresh token twice; its family is revoked", application.id
            )
        return outcome

    def _check_address(self, application: StoredApplication, origin: Origin, door: Door) -> None:
        """Raise `Forbidden` unless the application may call from there."""
        if application.may_call_from(origin.address):
            return
        count_login(door, ok=False)
        self.refused.record(
            Caller(application.principal, origin.address, origin.request_id), "address"
        )
        raise Forbidden(f"application may not call from {origin.address or 'an unknown address'}")

    def _details(self, outcome: TokenPair | Refusal | None, otherwise: str) -> TokenDetails:
        if not isinstance(outcome, TokenPair):
            raise Unauthenticated(otherwise)
        count_tokens()
        return TokenDetails(
            access_token=outcome.access,
            refresh_token=outcome.refresh,
            expires_in=remaining(self.access_life),
            refresh_token_expires_in=remaining(self.refresh_life),
        )


def _is_of(application: StoredApplication, request: RefreshToken) -> bool:
    """Whether the client id and the secret are the application's, as far as they were sent."""
    if request.client_id not in (None, application.client_id):
        return False
    secret = request.client_secret
    return secret is None or secret_matches(secret, application.secret_hash)


def remaining(life: int) -> int:
    """The whole seconds that are surely left when the answer arrives, as samples show them."""
    return max(0, life - 1)
