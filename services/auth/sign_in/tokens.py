"""The tokens of `/oauth/token` (applications) and `/oauth2/token` (users).

No response reveals whether an account exists: an unknown account, a disabled account and a wrong
password get the same error, after the same work and the same throttling.
"""

import logging
from dataclasses import dataclass

import msgspec

from libs.common.errors import Forbidden, Unauthenticated
from libs.common.identity import OWN_CONSOLE_CLIENT_ID, Caller, PrincipalKind
from services.auth.accounts import Accounts
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.accounts.users import StoredUser
from services.auth.applications.model import StoredApplication
from services.auth.applications.store import ApplicationStore
from services.auth.audit import AuditTarget
from services.auth.changes import ChangeRunner, ChangeTransaction
from services.auth.client_secrets import hash_secret, matches_secret_hash
from services.auth.login_records import (
    LoginMethod,
    RejectedLoginRecorder,
    count_login,
    count_token_pair,
)
from services.auth.passwords import LoginThrottle, PasswordHasherPool
from services.auth.sign_in.token_requests import (
    ApplicationGrant,
    ApplicationRefreshGrant,
    ClientCredentialsGrant,
    ConsoleTokens,
    PasswordGrant,
    RequestOrigin,
    TokenDetails,
    UserGrant,
    UserRefreshGrant,
    build_user_token_error,
)
from services.auth.tenants.console import TENANT_HEADER
from services.auth.tokens.writer import TokenPair, TokenRejection, TokenWriter

log = logging.getLogger(__name__)

WRONG_CREDENTIALS_TEXT = "client_id or client_secret is wrong"
"""The message for an unknown client as well as for a wrong secret."""
WRONG_REFRESH_TEXT = "refresh_token is invalid or expired"


@dataclass(frozen=True)
class ApplicationTokenService:
    """Issues tokens of applications. Lifetimes are in seconds."""

    applications: ApplicationStore
    tokens: TokenWriter
    rejected_logins: RejectedLoginRecorder
    access_life: int
    refresh_life: int

    async def issue_for_grant(
        self, request: ApplicationGrant, origin: RequestOrigin
    ) -> TokenDetails:
        """Return the tokens for a grant; raise `Unauthenticated` or `Forbidden`."""
        if isinstance(request, ClientCredentialsGrant):
            return await self._log_in(request, origin)
        return await self._refresh(request, origin)

    async def _log_in(
        self, credentials: ClientCredentialsGrant, origin: RequestOrigin
    ) -> TokenDetails:
        """Issue tokens for an application's credentials.

        Raises `Unauthenticated`, and `Forbidden` if only the address is wrong.
        """
        application = await self.applications.find_by_client_id(credentials.client_id)
        stored = application.secret_hash if application else None
        outcome: TokenPair | TokenRejection | None = None
        if matches_secret_hash(credentials.client_secret, stored) and application:
            self._require_allowed_address(application, origin, "client_credentials")
            outcome = await self.tokens.issue(application.principal, application.generation)
        is_granted = isinstance(outcome, TokenPair)
        count_login("client_credentials", ok=is_granted)
        return self._build_tokens(outcome, WRONG_CREDENTIALS_TEXT)

    async def _refresh(
        self, request: ApplicationRefreshGrant, origin: RequestOrigin
    ) -> TokenDetails:
        """Exchange a refresh token for new tokens; raise `Unauthenticated`, `Forbidden`.

        Reads the application again, because its name may have changed, and its generation
        invalidates tokens that Redis should have deleted.
        """
        outcome = await self._rotate(request, origin)
        is_granted = isinstance(outcome, TokenPair)
        count_login("refresh_token", ok=is_granted)
        return self._build_tokens(outcome, WRONG_REFRESH_TEXT)

    async def _rotate(
        self, request: ApplicationRefreshGrant, origin: RequestOrigin
    ) -> TokenPair | TokenRejection:
        holder = await self.tokens.find_principal(request.refresh_token)
        if holder is None or holder.kind is not PrincipalKind.APPLICATION:
            return TokenRejection.UNKNOWN
        application = await self.applications.find_by_id(holder.application_id)
        if application is None:
            return TokenRejection.STALE
        if not _matches_client(application, request):
            return TokenRejection.UNKNOWN
        self._require_allowed_address(application, origin, "refresh_token")
        principal = msgspec.structs.replace(application.principal, family=holder.family)
        outcome = await self.tokens.rotate(request.refresh_token, principal, application.generation)
        if outcome is TokenRejection.REUSED:
            log.warning(
                "application %d used a refresh token twice; its family is revoked", application.id
            )
        return outcome

    def _require_allowed_address(
        self, application: StoredApplication, origin: RequestOrigin, method: LoginMethod
    ) -> None:
        """Raise `Forbidden` unless the application may be used from the address."""
        if application.may_call_from(origin.address):
            return
        count_login(method, ok=False)
        self.rejected_logins.enqueue(
            Caller(application.principal, origin.address, origin.request_id), "address"
        )
        raise Forbidden(
            f"address {origin.address or 'unknown'} is not allowed for this application"
        )

    def _build_tokens(
        self, outcome: TokenPair | TokenRejection | None, rejection: str
    ) -> TokenDetails:
        if not isinstance(outcome, TokenPair):
            raise Unauthenticated(rejection)
        count_token_pair()
        return TokenDetails(
            access_token=outcome.access,
            refresh_token=outcome.refresh,
            expires_in=expires_in_on_arrival(self.access_life),
            refresh_token_expires_in=expires_in_on_arrival(self.refresh_life),
        )


def _matches_client(application: StoredApplication, request: ApplicationRefreshGrant) -> bool:
    """Return whether the optional client id and secret match the application."""
    if request.client_id not in (None, application.client_id):
        return False
    secret = request.client_secret
    return secret is None or matches_secret_hash(secret, application.secret_hash)


def expires_in_on_arrival(seconds_left: int) -> int:
    """Return `seconds_left` less one second for sending the response, at least 0."""
    return max(0, seconds_left - 1)


@dataclass(frozen=True)
class UserTokenService:
    """Issues tokens of users.

    Rejections are recorded without waiting, so that responses take equally long for existing and
    unknown accounts.
    """

    console: ClientCredentialsGrant
    """The client from the settings, which serves all tenants."""
    accounts: Accounts
    hashes: PasswordHasherPool
    throttle: LoginThrottle
    changes: ChangeRunner
    tokens: TokenWriter
    rejected_logins: RejectedLoginRecorder
    access_life: int
    """Life of an access token in seconds."""
    own_console: bool
    """Whether users may log in at the built-in console of the gateway."""

    async def issue_for_grant(self, request: UserGrant, origin: RequestOrigin) -> ConsoleTokens:
        """Return the tokens for a grant.

        Raises `Unauthenticated`, `TooManyRequests` after failed logins or if too many logins wait,
        and `Unavailable` if a login waits too long.
        """
        tenant = await self._authenticate_client(request.client, origin)
        if isinstance(request, PasswordGrant):
            outcome = await self._log_in(request, tenant or DEFAULT_TENANT, origin)
            count_login("password", ok=outcome is not None)
            reason = build_user_token_error("invalid_request", "Bad credentials")
        else:
            outcome = await self._refresh(request, tenant, origin)
            count_login("user_refresh_token", ok=outcome is not None)
            reason = build_user_token_error(
                "invalid_grant", "refresh_token is invalid or expired.", "refresh_token"
            )
        if outcome is None:
            raise reason
        count_token_pair()
        return ConsoleTokens(
            access_token=outcome.access,
            refresh_token=outcome.refresh,
            expires_in=expires_in_on_arrival(self.access_life - outcome.age_seconds),
        )

    async def _authenticate_client(
        self, client: ClientCredentialsGrant, origin: RequestOrigin
    ) -> str | None:
        """Verify the client; return the tenant of the request, else of the client.

        Returns None if neither names a tenant. Raises `Unauthenticated`.
        """
        served: str | None = None
        if self.own_console and client.client_id == OWN_CONSOLE_CLIENT_ID:
            return origin.tenant
        if self.console.client_id and client.client_id == self.console.client_id:
            stored: str | None = hash_secret(self.console.client_secret)
        else:
            stored, served = await self.accounts.console_clients.find_secret_hash_and_tenant(
                client.client_id
            )
        if not matches_secret_hash(client.client_secret, stored):
            raise build_user_token_error(
                "invalid_client", "client_id or client_secret is wrong.", "client_id"
            )
        tenant = origin.tenant or served
        if served is not None and served != tenant:
            raise build_user_token_error(
                "invalid_client", "the client belongs to another tenant.", TENANT_HEADER
            )
        return tenant

    async def _log_in(
        self, request: PasswordGrant, tenant: str, origin: RequestOrigin
    ) -> TokenPair | None:
        tenant_exists = await self.accounts.tenants.exists(tenant)
        async with self.throttle.attempt(
            tenant, request.username, origin.address, tenant_exists=tenant_exists
        ) as attempt:
            user = await self.accounts.users.find_by_email(tenant, request.username)
            matches = await self.hashes.matches(
                request.password, user.password_hash if user is not None else None
            )
            attempt.is_correct = matches and user is not None and user.enabled
            renewed = (
                await self.hashes.rehash_if_outdated(request.password, user.password_hash)
                if user is not None and attempt.is_correct
                else None
            )
        if user is None:
            return None
        if not attempt.is_correct:
            reason = "disabled" if matches else "wrong_password"
            self.rejected_logins.enqueue(_build_caller(user, origin), reason)
            return None
        principal = msgspec.structs.replace(user.principal, client=request.client.client_id)
        outcome = await self.tokens.issue(principal, user.generation, origin.login_origin)
        if not isinstance(outcome, TokenPair):
            return None
        await self._record_login(user, renewed, origin)
        return outcome

    async def _record_login(
        self, user: StoredUser, new_hash: str | None, origin: RequestOrigin
    ) -> None:
        """Record the login in the audit log.

        Stores `new_hash`, if the password was hashed again, unless the password has changed since.
        """

        async def record_login(change: ChangeTransaction) -> None:
            change.record("created", _session_audit_target(user))
            if new_hash is not None:
                await self.accounts.users.replace_hash_if_unchanged(user, new_hash, change.session)

        await self.changes.run(_build_caller(user, origin), record_login)

    async def _refresh(
        self, request: UserRefreshGrant, tenant: str | None, origin: RequestOrigin
    ) -> TokenPair | None:
        """Exchange a refresh token for new tokens of its session; None if rejected.

        Reads the user again, because its generation invalidates tokens that Redis should have
        deleted.
        """
        holder = await self.tokens.find_principal(request.refresh_token)
        if (
            holder is None
            or holder.kind is not PrincipalKind.USER
            or tenant not in {None, holder.tenant}
        ):
            return None
        user = await self.accounts.users.get(holder.tenant, holder.user_id)
        if user is None or not user.enabled:
            return None
        principal = msgspec.structs.replace(
            user.principal,
            family=holder.family,
            client=holder.client or request.client.client_id,
        )
        outcome = await self.tokens.rotate(
            request.refresh_token, principal, user.generation, origin.login_origin
        )
        if outcome is TokenRejection.REUSED:
            log.warning("user %d used a refresh token twice; its family is revoked", user.id)
            await self.changes.record(
                _build_caller(user, origin), "revoked", _session_audit_target(user)
            )
        return outcome if isinstance(outcome, TokenPair) else None


def _session_audit_target(user: StoredUser) -> AuditTarget:
    return AuditTarget("session", str(user.id), user.email)


def _build_caller(user: StoredUser, origin: RequestOrigin) -> Caller:
    return Caller(user.principal, origin.address, origin.request_id)
