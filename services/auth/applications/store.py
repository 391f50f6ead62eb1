"""Applications in MongoDB."""

from libs.common.errors import Conflict
from libs.common.store.mongo import Database, Document, DuplicateKey, Session, containing
from services.auth.applications.schemas import ApplicationSearch, StoredApplication

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

    async def add(self, application: StoredApplication, session: Session) -> None:
        """Add an application; raise `Conflict` when the tenant has one of that name."""
        try:
            await self._applications.insert_one(_document(application), session=session)
        except DuplicateKey as error:
            raise _taken(application) from error

    async def get(
        self, application_id: int, tenant: str, session: Session | None = None
    ) -> StoredApplication | None:
        """One application of a tenant."""
        query = {"_id": application_id, "tenant": tenant}
        found = await self._applications.find_one(query, session=session)
        return None if found is None else _application(found)

    async def by_id(self, application_id: int) -> StoredApplication | None:
        """One application, whosever it is."""
        found = await self._applications.find_one({"_id": application_id})
        return None if found is None else _application(found)

    async def by_client_id(self, client_id: str) -> StoredApplication | None:
        """The application that logs in with `client_id`."""
        found = await self._applications.find_one({"clientId": client_id})
        return None if found is None else _application(found)

    async def all(self, tenant: str) -> list[StoredApplication]:
        """All applications of a tenant by name."""
        found = self._applications.find({"tenant": tenant}).sort("name", 1)
        return [_application(document) async for document in found]

    async def search(
        self, tenant: str, wanted: ApplicationSearch
    ) -> tuple[list[StoredApplication], int]:
        """The applications of a tenant that were asked for, and how many there are of them."""
        query: Document = {"tenant": tenant}
        if wanted.keyword:
            part = containing(wanted.keyword)
            query["$or"] = [{"name": part}, {"clientId": part}]
        found = self._applications.find(query).sort(wanted.order(_COLUMNS))
        rows = [
            _application(document) async for document in found.skip(wanted.skip).limit(wanted.limit)
        ]
        total = await self._applications.count_documents(query) if wanted.paged else len(rows)
        return rows, total

    async def replace(self, application: StoredApplication, session: Session) -> None:
        """Write an application anew; raise `Conflict` when its name is taken."""
        try:
            await self._applications.replace_one(
                {"_id": application.id, "tenant": application.tenant},
                _document(application),
                session=session,
            )
        except DuplicateKey as error:
            raise _taken(application) from error

    async def remove(self, application: StoredApplication, session: Session) -> None:
        """Remove an application."""
        query = {"_id": application.id, "tenant": application.tenant}
        await self._applications.delete_one(query, session=session)


def _taken(application: StoredApplication) -> Conflict:
    return Conflict(
        f"there is an application {application.name!r} already",
        field="name",
        code="name_repeated",
    )


def _document(application: StoredApplication) -> Document:
    return {stored: getattr(application, name) for name, stored in _NAMES.items()}


def _application(document: Document) -> StoredApplication:
    values = {name: document[stored] for name, stored in _NAMES.items()}
    values["allowed_addresses"] = tuple(values["allowed_addresses"])
    return StoredApplication(**values)
