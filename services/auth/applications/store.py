"""Applications in MongoDB; each change, its event and its revocation are one transaction."""

from typing import Any

from pymongo import ReturnDocument

from libs.common.bus import Outbox
from libs.common.errors import Conflict
from libs.common.store.mongo import DuplicateKey, Mongo, Session
from services.auth.applications.messages import Happening, application_event
from services.auth.applications.schemas import StoredApplication
from services.auth.applications.service import Change, raised, revocation_of
from services.auth.revocations.store import RevocationStore

_NAMES = {
    "id": "_id",
    "tenant": "tenant",
    "name": "name",
    "client_id": "clientId",
    "secret_hash": "secretHash",
    "generation": "generation",
    "events": "events",
    "created_at": "createdAt",
}


class ApplicationStore:
    """The collection `applications`."""

    def __init__(self, mongo: Mongo, outbox: Outbox, revocations: RevocationStore) -> None:
        self._mongo = mongo
        self._applications = mongo.database["applications"]
        self._outbox = outbox
        self._revocations = revocations

    async def create(self, application: StoredApplication) -> Change:
        """Add an application; raise `Conflict` when the tenant has one of that name."""

        async def work(session: Session) -> Change:
            await self._applications.insert_one(_document(application), session=session)
            return await self._said(application, "created", session)

        try:
            return await self._mongo.transaction(work)
        except DuplicateKey as error:
            raise Conflict(
                f"there is an application {application.name!r} already", field="name"
            ) from error

    async def get(self, application_id: int, tenant: str) -> StoredApplication | None:
        """One application of a tenant."""
        return await self._one({"_id": application_id, "tenant": tenant})

    async def by_id(self, application_id: int) -> StoredApplication | None:
        """One application, whosever it is."""
        return await self._one({"_id": application_id})

    async def by_client_id(self, client_id: str) -> StoredApplication | None:
        """The application that logs in with `client_id`."""
        return await self._one({"clientId": client_id})

    async def list(self, tenant: str) -> list[StoredApplication]:
        """All applications of a tenant by name."""
        found = self._applications.find({"tenant": tenant}).sort("name", 1)
        return [_application(document) async for document in found]

    async def rotate(self, application_id: int, tenant: str, hashed: str) -> Change | None:
        """Set a new secret, raise the generation and intend the revocation."""

        async def work(session: Session) -> Change | None:
            document = await self._applications.find_one_and_update(
                {"_id": application_id, "tenant": tenant},
                {"$set": {"secretHash": hashed}, "$inc": {"generation": 1}},
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            if document is None:
                return None
            application = _application(document)
            await self._revocations.add(revocation_of(application), session)
            return await self._said(application, "rotated", session)

        return await self._mongo.transaction(work)

    async def delete(self, application_id: int, tenant: str) -> Change | None:
        """Remove an application and intend the revocation."""

        async def work(session: Session) -> Change | None:
            document = await self._applications.find_one_and_delete(
                {"_id": application_id, "tenant": tenant}, session=session
            )
            if document is None:
                return None
            application = raised(_application(document))
            await self._revocations.add(revocation_of(application), session)
            return await self._said(application, "deleted", session)

        return await self._mongo.transaction(work)

    async def relay(self, change: Change) -> None:
        """Publish what was said of a change; on failure the outbox's sweep will."""
        await self._outbox.relay(change.said)

    async def _one(self, query: dict[str, Any]) -> StoredApplication | None:
        document = await self._applications.find_one(query)
        return None if document is None else _application(document)

    async def _said(
        self, application: StoredApplication, change: Happening, session: Session
    ) -> Change:
        said = await self._outbox.add([application_event(application, change)], session)
        return Change(application, said)


def _document(application: StoredApplication) -> dict[str, Any]:
    return {stored: getattr(application, name) for name, stored in _NAMES.items()}


def _application(document: dict[str, Any]) -> StoredApplication:
    return StoredApplication(**{name: document[stored] for name, stored in _NAMES.items()})
