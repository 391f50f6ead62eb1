"""The construction of both token endpoints."""

from dataclasses import dataclass

from services.auth.core import Core
from services.auth.sign_in.application_tokens import ApplicationTokenService
from services.auth.sign_in.token_requests import ClientCredentials
from services.auth.sign_in.user_tokens import UserTokenService


@dataclass(frozen=True)
class SignInHandlers:
    """What the token endpoints need."""

    tokens: ApplicationTokenService
    sign_in: UserTokenService


def wire_sign_in(core: Core) -> SignInHandlers:
    """Construct the services that issue tokens."""
    settings = core.settings
    tokens = ApplicationTokenService(
        applications=core.applications,
        tokens=core.application_tokens,
        refused=core.refused,
        access_life=settings.access_token_life,
        refresh_life=settings.refresh_token_life,
    )
    sign_in = UserTokenService(
        console=ClientCredentials(settings.console_client_id, settings.console_client_secret),
        accounts=core.accounts,
        hashes=core.hashes,
        throttle=core.throttle,
        changes=core.changes,
        tokens=core.user_tokens,
        refused=core.refused,
        access_life=settings.user_access_token_life,
        own_console=settings.console == "on",
    )
    return SignInHandlers(tokens, sign_in)
