"""Both grants of `POST /oauth2/token`: password and refresh token.

Nothing tells whether an account exists: an unknown, a disabled and a mistyped one have one
answer, after the same work, and the same pause after too many attempts.
"""

import logging
from collections.abc import Callable

import msgspec

from libs.common.identity import OWN_CONSOLE, Caller, Kind
from services.auth.accounts import Accounts
from services.auth.accounts.tenants import DEFAULT_TENANT
from services.auth.accounts.users import StoredUser
from services.auth.audit.schemas import Deed, Subject
from services.auth.changes import Change, Changes
from services.auth.metrics import count_login, count_tokens
from services.auth.passwords.hashing import PasswordHashes
from services.auth.passwords.throttle import Throttle
from services.auth.secret_hash import secret_hash, secret_matches
from services.auth.sign_in.applications import remaining
from services.auth.sign_in.form import refused
from services.auth.sign_in.schemas import (
    ClientCredentials,
    ConsoleTokens,
    Grant,
    Origin,
    PasswordGrant,
    RefreshGrant,
)
from services.auth.tenants.header import HEADER
from services.auth.tokens.writer import Refusal, TokenPair, TokenWriter

log = logging.getLogger(__name__)


class SignIn:
    """Gives people tokens; `access_life` is in seconds.

    `console` is the client of the settings, which serves all tenants; `own_console` says whether
    that of the console of the gateway is known. `record_refusal` is told of
    accounts that exist; it never waits, so that the answer takes as long as for those that do not.
    """

    def __init__(
        self,
        console: ClientCredentials,
        accounts: Accounts,
        hashes: PasswordHashes,
        throttle: Throttle,
        changes: Changes,
        tokens: TokenWriter,
        record_refusal: Callable[[Caller, str], None],
        *,
        access_life: int,
        own_console: bool,
    ) -> None:
        self._own_console = own_console
        self._console = console.client_id
        self._console_hash = secret_hash(console.client_secret)
        self._clients = accounts.console_clients
        self._users = accounts.users
        self._tenants = accounts.tenants
        self._hashes = hashes
        self._throttle = throttle
        self._changes = changes
        self._tokens = tokens
        self._record_refusal = record_refusal
        self._access_life = access_life

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
            expires_in=remaining(self._access_life - outcome.age),
        )

    async def _tenant(self, client: ClientCredentials, origin: Origin) -> str | None:
        """The tenant that the request names or the client serves; None when neither says."""
        served: str | None = None
        if self._own_console and client.client_id == OWN_CONSOLE:
            return origin.tenant
        if self._console and client.client_id == self._console:
            stored: str | None = self._console_hash
        else:
            stored, served = await self._clients.get(client.client_id)
        if not secret_matches(client.client_secret, stored):
            raise refused("invalid_client", "client_id or client_secret is wrong.", "client_id")
        tenant = origin.tenant or served
        if served is not None and served != tenant:
            raise refused("invalid_client", "the client is of another tenant.", HEADER)
        return tenant

    async def _log_in(
        self, request: PasswordGrant, tenant: str, origin: Origin
    ) -> TokenPair | None:
        exists = await self._tenants.exists(tenant)
        async with self._throttle.attempt(
            tenant, request.username, origin.address, exists=exists
        ) as attempt:
            user = await self._users.by_email(tenant, request.username)
            right = await self._hashes.matches(
                request.password, user.password_hash if user is not None else None
            )
            attempt.right = right and user is not None and user.enabled
            renewed = (
                await self._hashes.renewed(request.password, user.password_hash)
                if user is not None and attempt.right
                else None
            )
        if user is None:
            return None
        if not attempt.right:
            reason = "disabled" if right else "wrong_password"
            self._record_refusal(_caller(user, origin), reason)
            return None
        principal = msgspec.structs.replace(user.principal, client=request.client.client_id)
        outcome = await self._tokens.issue(principal, user.generation, origin.login)
        if not isinstance(outcome, TokenPair):
            return None
        await self._remember(user, renewed, origin)
        return outcome

    async def _remember(self, user: StoredUser, renewed: str | None, origin: Origin) -> None:
        """Record the log-in, and store a hash that was renewed."""

        async def work(change: Change) -> None:
            change.record(Deed(action="created", subject=_session(user)))
            if renewed is not None:
                await self._users.renew_hash(user, renewed, change.session)

        await self._changes.run(_caller(user, origin), work)

    async def _refresh(
        self, request: RefreshGrant, tenant: str | None, origin: Origin
    ) -> TokenPair | None:
        """The user is read anew: its generation is what keeps an ended token from being of use."""
        holder = await self._tokens.holder(request.refresh_token)
        if holder is None or holder.kind is not Kind.USER or tenant not in {None, holder.tenant}:
            return None
        user = await self._users.get(holder.tenant, holder.user_id)
        if user is None or not user.enabled:
            return None
        principal = msgspec.structs.replace(
            user.principal,
            family=holder.family,
            client=holder.client or request.client.client_id,
        )
        outcome = await self._tokens.rotate(
            request.refresh_token, principal, user.generation, origin.login
        )
        if outcome is Refusal.REUSED:
            log.warning("user %d used a refresh token twice; its family is revoked", user.id)
            await self._record_reuse(user, origin)
        return outcome if isinstance(outcome, TokenPair) else None

    async def _record_reuse(self, user: StoredUser, origin: Origin) -> None:
        async def work(change: Change) -> None:
            change.record(Deed(action="revoked", subject=_session(user)))

        await self._changes.run(_caller(user, origin), work)


def _session(user: StoredUser) -> Subject:
    return Subject("session", str(user.id), user.email)


def _caller(user: StoredUser, origin: Origin) -> Caller:
    return Caller(user.principal, origin.address, origin.request_id)
