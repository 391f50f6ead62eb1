"""Admission of requests: authentication, rate limits and permissions.

Checks run in this order: rate limit of the address, credential, permitted networks of the
principal, rate limit of the principal. Then a user gets the current permissions, which the service
checks.
"""

import asyncio
from typing import NamedTuple
from urllib.parse import unquote

from libs.common.errors import (
    Forbidden,
    ThingwayError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from libs.common.http.request import basic_login, bearer_token
from libs.common.identity import Principal
from libs.common.identity.access import AccessReader
from libs.common.identity.device_keys import DeviceKeyReader
from libs.common.identity.networks import is_in_networks
from libs.common.identity.tokens import TokenReader
from libs.common.scheduling import FairScheduler
from libs.common.store.redis import RedisError
from libs.common.tls import PeerCertificate
from services.gateway.access.addresses import ClientOrigin
from services.gateway.concurrency import RETRY_SECONDS, principal_key
from services.gateway.rates import RateLimiter
from services.gateway.routes import CredentialType, Route

CERTIFICATE_STATE_KEY = "certificate"
"""Key of the client's certificate in the `state` of a request."""
MAX_ADMISSION_SECONDS = 2.0
"""Seconds that admission may take before the request is rejected."""
MAX_ADMISSIONS_PER_ADDRESS = 32
"""Maximum concurrent admissions of one address: half of the maximum of all addresses."""
MAX_WAITING_PER_ADDRESS = 4_000
"""Maximum requests of an address that wait for admission."""
MAX_TURN_WAIT_SECONDS = 1.0
"""Seconds for which a request may wait for its turn."""


def redis_unavailable_error() -> ThingwayError:
    """Return the error for requests while Redis does not answer."""
    return Unavailable("the token database does not answer at the moment")


class RateLimiters(NamedTuple):
    """The three rate limits of the gateway."""

    principal: RateLimiter
    address: RateLimiter
    sign_in: RateLimiter


class RequestAdmission:
    """Authenticates requests and applies rate limits; rejects with 503 while Redis fails."""

    def __init__(
        self,
        tokens: TokenReader,
        devices: DeviceKeyReader,
        access: AccessReader,
        limits: RateLimiters,
    ) -> None:
        self._tokens = tokens
        self._devices = devices
        self._access = access
        self._limits = limits
        self._turns = FairScheduler(
            "admission",
            2 * MAX_ADMISSIONS_PER_ADDRESS,
            items=MAX_WAITING_PER_ADDRESS,
            has_metrics=False,
        )

    async def admit(
        self,
        route: Route,
        path: bytes,
        origin: ClientOrigin,
        authorization: bytes | None,
        query_token: str | None,
        certificate: PeerCertificate | None = None,
    ) -> Principal | None:
        """Return the principal of a request, None on a public route.

        Raises `Unauthenticated`, `Forbidden`, `TooManyRequests` and `Unavailable`; the caller
        limits the time (`MAX_ADMISSION_SECONDS`).
        """
        address = origin.rate_limit_key
        try:
            async with asyncio.timeout(MAX_TURN_WAIT_SECONDS) as wait, self._turns.slot(address):
                wait.reschedule(None)
                await self._limits.address.take_permit(address)
                if route.signs_in:
                    await self._limits.sign_in.take_permit(address)
                principal = await self._authenticate(
                    route, path, authorization, query_token, certificate
                )
                if principal is None:
                    return None
                if principal.networks and not is_in_networks(origin.address, principal.networks):
                    raise Forbidden(f"{principal.kind} may not call from {origin.address}")
                await self._limits.principal.take_permit(principal_key(principal))
                return await self._access.add_access(principal)
        except TimeoutError as error:
            message = "too many concurrent requests of this address"
            raise TooManyRequests(message, retry_after=RETRY_SECONDS) from error
        except (RedisError, OSError) as error:
            raise redis_unavailable_error() from error

    async def admit_page(self, address: str) -> None:
        """Apply the rate limit of `address` to a request that the gateway answers itself.

        Raises `TooManyRequests` and `Unavailable`.
        """
        try:
            async with asyncio.timeout(MAX_ADMISSION_SECONDS):
                await self._limits.address.take_permit(address)
        except (RedisError, OSError) as error:
            raise redis_unavailable_error() from error

    async def _authenticate(
        self,
        route: Route,
        path: bytes,
        authorization: bytes | None,
        query_token: str | None,
        certificate: PeerCertificate | None,
    ) -> Principal | None:
        match route.credential:
            case CredentialType.NONE:
                return None
            case CredentialType.TOKEN:
                principal = await self._authenticate_token(
                    bearer_token(authorization) or query_token
                )
            case CredentialType.DEVICE_KEY:
                principal = await self._authenticate_device(route, path, authorization, certificate)
        if principal.kind not in route.kinds:
            raise Forbidden(f"a principal of kind {principal.kind} may not call this API")
        return principal

    async def _authenticate_token(self, token: str | None) -> Principal:
        if not token:
            raise Unauthenticated("an access token is required: Authorization: Bearer <token>")
        principal = await self._tokens.principal(token)
        if principal is None:
            raise Unauthenticated("the access token is invalid or has expired")
        return principal

    async def _authenticate_device(
        self,
        route: Route,
        path: bytes,
        authorization: bytes | None,
        certificate: PeerCertificate | None,
    ) -> Principal:
        """Return the device of a key or, without a key, of the client's certificate."""
        login = basic_login(authorization)
        if login is not None:
            principal = await self._devices.authenticate(*login)
        elif certificate is not None and authorization is None:
            principal = await self._devices.authenticate_certificate(certificate)
        else:
            raise Unauthenticated("SN and device key are required: Authorization: Basic")
        if principal is None:
            raise Unauthenticated("the SN and key, or the certificate, are invalid")
        sn = unquote(path[len(route.prefix) :].partition(b"/")[0].decode("latin-1"))
        if sn.upper() != principal.subject.upper():
            raise Forbidden("the SN in the path differs from the SN of the device")
        return principal
