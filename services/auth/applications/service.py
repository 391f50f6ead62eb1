"""Creates, lists, rotates and deletes applications."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import msgspec

from libs.common.contracts.auth import (
    Application,
    ApplicationRef,
    Applications,
    ApplicationSecret,
    CreateApplication,
    Done,
    ListApplications,
)
from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Kind
from services.auth.applications.schemas import StoredApplication
from services.auth.revocations.service import Revocation, Revoker
from services.auth.secret_hash import new_secret, secret_hash

T = TypeVar("T")

MAX_NAME = 64
"""Most characters of an application's name."""
TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A tenant is one token of a bus subject."""


@dataclass(frozen=True)
class Change:
    """An application after a change, and the outbox entries that tell of it."""

    application: StoredApplication
    said: Sequence[dict[str, Any]]


class Store(Protocol):
    """Where applications are kept; changes raise what they are told to."""

    async def create(self, application: StoredApplication) -> Change:
        """Add an application; raise `Conflict` when the tenant has one of that name."""

    async def get(self, application_id: int, tenant: str) -> StoredApplication | None:
        """One application of a tenant."""

    async def list(self, tenant: str) -> Sequence[StoredApplication]:
        """All applications of a tenant by name."""

    async def rotate(self, application_id: int, tenant: str, hashed: str) -> Change | None:
        """Set a new secret and raise the generation."""

    async def delete(self, application_id: int, tenant: str) -> Change | None:
        """Remove an application; the change carries a raised generation."""

    async def relay(self, change: Change) -> None:
        """Publish what was said of a change."""


class ApplicationService:
    """The operations on applications that other services ask for."""

    def __init__(
        self,
        store: Store,
        revoker: Revoker,
        next_id: Callable[[], Awaitable[int]],
        disconnect: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._revoker = revoker
        self._next_id = next_id
        self._disconnect = disconnect

    async def create(self, wanted: CreateApplication) -> ApplicationSecret:
        """Add an application; raise `InvalidInput` or `Conflict`. The secret is shown once."""
        name = _name(wanted.name)
        tenant = _tenant(wanted.tenant)
        secret = new_secret()
        application = StoredApplication(
            id=await self._next_id(),
            tenant=tenant,
            name=name,
            client_id=str(uuid4()),
            secret_hash=secret_hash(secret),
            generation=1,
            events=wanted.events,
            created_at=datetime.now(UTC),
        )
        change = await self._store.create(application)
        await self._store.relay(change)
        return _shown(application, secret)

    async def get(self, wanted: ApplicationRef) -> Application:
        """One application; raise `NotFound`."""
        return _found(await self._store.get(wanted.application_id, wanted.tenant), wanted).listed

    async def list(self, wanted: ListApplications) -> Applications:
        """The applications of a tenant by name."""
        found = await self._store.list(wanted.tenant)
        return Applications([application.listed for application in found])

    async def rotate(self, wanted: ApplicationRef) -> ApplicationSecret:
        """Make a new secret; the old one and every token are dead when this returns."""
        secret = new_secret()
        change = _found(
            await self._store.rotate(wanted.application_id, wanted.tenant, secret_hash(secret)),
            wanted,
        )
        await self._shut_out(change)
        return _shown(change.application, secret)

    async def delete(self, wanted: ApplicationRef) -> Done:
        """Remove an application; its tokens are dead when this returns."""
        change = _found(await self._store.delete(wanted.application_id, wanted.tenant), wanted)
        await self._shut_out(change)
        return Done()

    async def _shut_out(self, change: Change) -> None:
        application = change.application
        await self._revoker.apply(revocation_of(application))
        await self._store.relay(change)
        if application.events:
            await self._disconnect(application.client_id)


def revocation_of(application: StoredApplication) -> Revocation:
    """Revoke what is older than the application's generation."""
    return Revocation(Kind.APPLICATION, str(application.id), application.generation)


def raised(application: StoredApplication) -> StoredApplication:
    """The application one generation on, which is what its deletion revokes with."""
    return msgspec.structs.replace(application, generation=application.generation + 1)


def _name(text: str) -> str:
    name = text.strip()
    if not name:
        raise InvalidInput("must not be blank", field="name")
    if len(name) > MAX_NAME:
        raise InvalidInput(f"must have at most {MAX_NAME} characters", field="name")
    if not name.isprintable():
        raise InvalidInput("must not have control characters", field="name")
    return name


def _tenant(text: str) -> str:
    if not TENANT.fullmatch(text):
        raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field="tenant")
    return text


def _shown(application: StoredApplication, secret: str) -> ApplicationSecret:
    return ApplicationSecret(
        application_id=application.id,
        name=application.name,
        client_id=application.client_id,
        client_secret=secret,
    )


def _found(found: T | None, wanted: ApplicationRef) -> T:
    if found is None:
        raise NotFound(f"there is no application {wanted.application_id}", field="applicationId")
    return found
