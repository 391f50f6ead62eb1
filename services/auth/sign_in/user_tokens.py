"""Both grants of `POST /oauth2/token`: password and refresh token.

Nothing tells whether an account exists: an unknown, a disabled and a mistyped one have one
answer, after the same work, and the same pause after too many attempts.
"""

import logging
from dataclasses import dataclass

import msgspec

from libs.common.identity import OWN_CONSOLE, Caller, Kind
from services.auth.accounts import Accounts
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.accounts.users import StoredUser
from services.auth.audit import Subject
from services.auth.changes import Change, Changes
from services.auth.logins import count_login, count_tokens, secret_hash, secret_matches
from services.auth.passwords import LoginThrottle, PasswordHashes
from services.auth.refused_logins import RefusedLoginRecorder
from services.auth.sign_in.application_tokens import remaining
from services.auth.sign_in.token_requests import (
    ClientCredentials,
    ConsoleTokens,
    Grant,
    Origin,
    PasswordGrant,
    RefreshGrant,
    refused,
)
from services.auth.tenants.console import HEADER
from services.auth.tokens.writer import Refusal, TokenPair, TokenWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UserTokenService:
    """Issues tokens to users.

    Recording a refusal never waits, so the answer takes as long for accounts that do not exist.
    """

    console: ClientCredentials
    """The client of the settings, which serves all tenants."""
    accounts: Accounts
    hashes: PasswordHashes
    throttle: LoginThrottle
    changes: Changes
    tokens: TokenWriter
    refused: RefusedLoginRecorder
    access_life: int
    """Seconds."""
    own_console: bool
    """Whether the client of the console of the gateway is known."""

    async def grant(self, request: Grant, origin: Origin) -> ConsoleTokens:
        """Answer either grant.

        Raises `Unauthenticated`, and `TooManyRequests` or `Unavailable` under a storm of log-ins.
        """
        tenant = await self._tenant(request.client, origin)
        if isinstance(request, PasswordGrant):
            outcome = await self._log_in(request, tenant or DEFAULT_TENANT, origin)
            count_login("password", ok=outcome is not None)
            reason = refused("invalid_request", "Bad credentials")
        else:
            outcome = await self._refresh(request, tenant, origin)
            count_login("user_refresh_token", ok=outcome is not None)
            reason = refused(
                "invalid_grant", "refresh_token is not valid, or no longer.", "refresh_token"
            )
        if outcome is None:
            raise reason
        count_tokens()
        return ConsoleTokens(
            access_token=outcome.access,
            refresh_token=outcome.refresh,
            expires_in=remaining(self.access_life - outcome.age),
        )

    async def _tenant(self, client: ClientCredentials, origin: Origin) -> str | None:
        """The tenant that the request names or the client serves; None when neither says."""
        served: str | None = None
        if self.own_console and client.client_id == OWN_CONSOLE:
            return origin.tenant
        if self.console.client_id and client.client_id == self.console.client_id:
            stored: str | None = secret_hash(self.console.client_secret)
        else:
            stored, served = await self.accounts.console_clients.get(client.client_id)
        if not secret_matches(client.client_secret, stored):
            raise refused("invalid_client", "client_id or client_secret is wrong.", "client_id")
        tenant = origin.tenant or served
        if served is not None and served != tenant:
            raise refused("invalid_client", "the client is of another tenant.", HEADER)
        return tenant

    async def _log_in(
        self, request: PasswordGrant, tenant: str, origin: Origin
    ) -> TokenPair | None:
        exists = await self.accounts.tenants.exists(tenant)
        async with self.throttle.attempt(
            tenant, request.username, origin.address, exists=exists
        ) as attempt:
            user = await self.accounts.users.by_email(tenant, request.username)
            right = await self.hashes.matches(
                request.password, user.password_hash if user is not None else None
            )
            attempt.right = right and user is not None and user.enabled
            renewed = (
                await self.hashes.renewed(request.password, user.password_hash)
                if user is not None and attempt.right
                else None
            )
        if user is None:
            return None
        if not attempt.right:
            reason = "disabled" if right else "wrong_password"
            self.refused.record(_caller(user, origin), reason)
            return None
        principal = msgspec.structs.replace(user.principal, client=request.client.client_id)
        outcome = await self.tokens.issue(principal, user.generation, origin.login)
        if not isinstance(outcome, TokenPair):
            return None
        await self._remember(user, renewed, origin)
        return outcome

    async def _remember(self, user: StoredUser, renewed: str | None, origin: Origin) -> None:
        """Record the log-in, and store a hash that was renewed."""

        async def record_login(change: Change) -> None:
            change.record("created", _session(user))
            if renewed is not None:
                await self.accounts.users.renew_hash(user, renewed, change.session)

        await self.changes.run(_caller(user, origin), record_login)

    async def _refresh(
        self, request: RefreshGrant, tenant: str | None, origin: Origin
    ) -> TokenPair | None:
        """The user is read anew: its generation is what keeps an ended token from being of use."""
        holder = await self.tokens.holder(request.refresh_token)
        if holder is None or holder.kind is not Kind.USER or tenant not in {None, holder.tenant}:
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
            request.refresh_token, principal, user.generation, origin.login
        )
        if outcome is Refusal.REUSED:
            log.warning("user %d used a refresh token twice; its family is revoked", user.id)
            await self.changes.record(_caller(user, origin), "revoked", _session(user))
        return outcome if isinstance(outcome, TokenPair) else None


def _session(user: StoredUser) -> Subject:
    return Subject("session", str(user.id), user.email)


def _caller(user: StoredUser, origin: Origin) -> Caller:
    return Caller(user.principal, origin.address, origin.request_id)
