"""Who logs in to the addresses of flows: HTTP Basic with the tenant's HTTP credential."""

import time

from libs.common.errors import TooManyRequests, Unauthenticated
from libs.common.recent import Recent
from services.workflow.credentials.schemas import CredentialsType
from services.workflow.credentials.service import TenantCredentials

FAILURES = 20
"""Failures of an address in a row; then one in `PAUSE` seconds, right or wrong."""
PAUSE = 1.0
KEPT = 10_000
"""Most addresses whose failures a process remembers."""


class HttpLogins:
    """Looks logins up, and slows down who guesses; each replica for itself."""

    def __init__(self, credentials: TenantCredentials) -> None:
        self._credentials = credentials
        self._failures: Recent[str, tuple[int, float]] = Recent(KEPT)
        """By address: how many, and when the last one was."""

    async def tenant(self, access_key: str, login: tuple[str, str] | None, address: str) -> str:
        """The tenant of an access key and its secret.

        Raises `Unauthenticated`, and `TooManyRequests` for an address that has failed too often.
        """
        failed, last = self._failures.get(address) or (0, 0.0)
        if failed >= FAILURES and time.monotonic() < last + PAUSE:
            raise TooManyRequests("too many wrong logins", retry_after=PAUSE)
        if login is None or login[0] != access_key:
            raise Unauthenticated("the access key and its secret are needed: Authorization: Basic")
        tenant = await self._credentials.login(CredentialsType.HTTP, *login)
        if tenant is None:
            self._failures.put(address, (failed + 1, time.monotonic()))
            raise Unauthenticated("the access key or its secret is wrong")
        self._failures.pop(address)
        return tenant
