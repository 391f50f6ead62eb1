"""The grants of `POST /oauth/token`: `client_credentials` and `refresh_token`."""

import logging
from dataclasses import dataclass

import msgspec

from libs.common.errors import Forbidden, Unauthenticated
from libs.common.identity import Caller, Kind
from services.auth.applications.model import StoredApplication
from services.auth.applications.store import ApplicationStore
from services.auth.client_secrets import secret_matches
from services.auth.login_records import LoginMethod, RefusedLoginRecorder, count_login, count_tokens
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
"""Same message for an unknown client and a wrong secret."""
WRONG_REFRESH = "refresh_token is invalid or expired"


@dataclass(frozen=True)
class ApplicationTokenService:
    """Issues tokens of applications. Lifetimes are in seconds."""

    applications: ApplicationStore
    tokens: TokenWriter
    refused: RefusedLoginRecorder
    access_life: int
    refresh_life: int

    async def grant(self, request: TokenRequest, origin: Origin) -> TokenDetails:
        """Return the tokens for a grant; raise `Unauthenticated` or `Forbidden`."""
        if isinstance(request, ClientCredentials):
            return await self._log_in(request, origin)
        return await self._refresh(request, origin)

    async def _log_in(self, credentials: ClientCredentials, origin: Origin) -> TokenDetails:
        """Issue tokens for an application's credentials.

        Raises `Unauthenticated`, and `Forbidden` if only the address is wrong.
        """
        application = await self.applications.find_by_client_id(credentials.client_id)
        stored = application.secret_hash if application else None
        outcome: TokenPair | Refusal | None = None
        if secret_matches(credentials.client_secret, stored) and application:
            self._check_address(application, origin, "client_credentials")
            outcome = await self.tokens.issue(application.principal, application.generation)
        is_granted = isinstance(outcome, TokenPair)
        count_login("client_credentials", ok=is_granted)
        return self._details(outcome, WRONG_CREDENTIALS)

    async def _refresh(self, request: RefreshToken, origin: Origin) -> TokenDetails:
        """Issue the next tokens of a family; raise `Unauthenticated` or `Forbidden`.

        Reads the application again, because its name may have changed, and its generation
        invalidates tokens that Redis should have deleted.
        """
        outcome = await self._rotate(request, origin)
        is_granted = isinstance(outcome, TokenPair)
        count_login("refresh_token", ok=is_granted)
        return self._details(outcome, WRONG_REFRESH)

    async def _rotate(self, request: RefreshToken, origin: Origin) -> TokenPair | Refusal:
        holder = await self.tokens.find_holder(request.refresh_token)
        if holder is None or holder.kind is not Kind.APPLICATION:
            return Refusal.UNKNOWN
        application = await self.applications.find_by_id(holder.application_id)
        if application is None:
            return Refusal.STALE
        if not _matches_client(application, request):
            return Refusal.UNKNOWN
        self._check_address(application, origin, "refresh_token")
        principal = msgspec.structs.replace(application.principal, family=holder.family)
        outcome = await self.tokens.rotate(request.refresh_token, principal, application.generation)
        if outcome is Refusal.REUSED:
            log.warning(
                "application %d used a refresh token twice; its family is revoked", application.id
            )
        return outcome

    def _check_address(
        self, application: StoredApplication, origin: Origin, method: LoginMethod
    ) -> None:
        """Raise `Forbidden` unless the application may be used from the address."""
        if application.may_call_from(origin.address):
            return
        count_login(method, ok=False)
        self.refused.record(
            Caller(application.principal, origin.address, origin.request_id), "address"
        )
        raise Forbidden(
            f"address {origin.address or 'unknown'} is not allowed for this application"
        )

    def _details(self, outcome: TokenPair | Refusal | None, rejection: str) -> TokenDetails:
        if not isinstance(outcome, TokenPair):
            raise Unauthenticated(rejection)
        count_tokens()
        return TokenDetails(
            access_token=outcome.access,
            refresh_token=outcome.refresh,
            expires_in=remaining_seconds(self.access_life),
            refresh_token_expires_in=remaining_seconds(self.refresh_life),
        )


def _matches_client(application: StoredApplication, request: RefreshToken) -> bool:
    """Return whether the optional client id and secret match the application."""
    if request.client_id not in (None, application.client_id):
        return False
    secret = request.client_secret
    return secret is None or secret_matches(secret, application.secret_hash)


def remaining_seconds(life: int) -> int:
    """Return the seconds that a lifetime surely has left when the response arrives."""
    return max(0, life - 1)
