"""Applications in MongoDB."""

from typing import Any

from libs.common.errors import Conflict
from libs.common.store.mongo import Database, DuplicateKey, containing
from services.auth.applications.schemas import ApplicationSearch, StoredApplication
from services.auth.changes import Change

_NAMES = {
    "id": "_id",
    "tenant": "tenant",
    "name": "name",
    "client_id": "clientId",
    "secret_hash": "secretHash",
    "generation": "generation",
    "events": "events",
    "allowed_addresses": "allowedAddresses",
    "created_at": "createdAt",
}
_COLUMNS = {
    "application_id": "_id",
    "name": "name",
    "client_id": "clientId",
    "events": "events",
    "created_at": "createdAt",
}
"""What can be sorted by."""


class ApplicationStore:
    """The collection `applications`."""

    def __init__(self, database: Database) -> None:
        self._applications = database["applications"]

    async def add(self, application: StoredApplication, change: Change) -> None:
        """Add an application; raise `Conflict` when the tenant has one of that name."""
        try:
            await self._applications.insert_one(_document(application), session=change.session)
        except DuplicateKey as error:
            raise _taken(application) from error

    async def get(
        self, application_id: int, tenant: str, change: Change | None = None
    ) -> StoredApplication | None:
        """One application of a tenant."""
        query = {"_id": application_id, "tenant": tenant}
        session = None if change is None else change.session
        return _application(await self._applications.find_one(query, session=session))

    async def by_id(self, application_id: int) -> StoredApplication | None:
        """One application, whosever it is."""
        return _application(await self._applications.find_one({"_id": application_id}))

    async def by_client_id(self, client_id: str) -> StoredApplication | None:
        """The application that logs in with `client_id`."""
        return _application(await self._applications.find_one({"clientId": client_id}))

    async def all(self, tenant: str) -> list[StoredApplication]:
        """All applications of a tenant by name."""
        found = self._applications.find({"tenant": tenant}).sort("name", 1)
        return [_of(document) async for document in found]

    async def search(
        self, tenant: str, wanted: ApplicationSearch
    ) -> tuple[list[StoredApplication], int]:
        """The applications of a tenant that were asked for, and how many there are of them."""
        query: dict[str, Any] = {"tenant": tenant}
        if wanted.keyword:
            part = containing(wanted.keyword)
            query["$or"] = [{"name": part}, {"clientId": part}]
        found = self._applications.find(query).sort(wanted.order(_COLUMNS))
        rows = [_of(document) async for document in found.skip(wanted.skip).limit(wanted.limit)]
        total = await self._applications.count_documents(query) if wanted.paged else len(rows)
        return rows, total

    async def replace(self, application: StoredApplication, change: Change) -> None:
        """Write an application anew; raise `Conflict` when its name is taken."""
        try:
            await self._applications.replace_one(
                {"_id": application.id, "tenant": application.tenant},
                _document(application),
                session=change.session,
            )
        except DuplicateKey as error:
            raise _taken(application) from error

    async def remove(self, application: StoredApplication, change: Change) -> None:
        """Remove an application."""
        query = {"_id": application.id, "tenant": application.tenant}
        await self._applications.delete_one(query, session=change.session)


def _taken(application: StoredApplication) -> Conflict:
    return Conflict(
        f"there is an application {application.name!r} already",
        field="name",
        code="name_repeated",
    )


def _document(application: StoredApplication) -> dict[str, Any]:
    return {stored: getattr(application, name) for name, stored in _NAMES.items()}


def _application(document: dict[str, Any] | None) -> StoredApplication | None:
    return None if document is None else _of(document)


def _of(document: dict[str, Any]) -> StoredApplication:
    values = {name: document[stored] for name, stored in _NAMES.items()}
    values["allowed_addresses"] = tuple(values["allowed_addresses"])
    return StoredApplication(**values)
